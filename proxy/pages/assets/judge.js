// What deserves a look, and why. Pure: figures in, reasons out. The bounds are those of the alerts, where these have one.
const FAILURES = ["engine_failed", "truncated", "engine_timeout", "drained", "gate_error"];
const FEWEST = 3; // one failure is no trend
const ENOUGH = 20; // requests, before a rate or a time of theirs says something

// Whether this code, or this outcome, is a failure and no refusal.
export const isFailure = (name) => FAILURES.includes(name);
export const failures = (figures) => FAILURES.reduce((sum, name) => sum + (figures.outcomes[name] ?? 0), 0);
// Whether so many failures are more than what always happens.
export const isFailing = (figures) => failures(figures) >= FEWEST && failures(figures) / figures.requests >= 0.01;
export const refusals = (figures) => figures.outcomes.refused ?? 0;
const sum = (numbers) => numbers.reduce((one, other) => one + other, 0);
// What is typical of some points: their middle; and of rates their mean by requests, for many points have few.
const middle = (values) => {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : null;
};
const mean = (values, requests) => {
  const weights = requests.map((number, at) => (values[at] === null ? 0 : number)), weight = sum(weights);
  return weight ? sum(weights.map((number, at) => number * (values[at] ?? 0))) / weight : null;
};

// The last quarter of a window against what was before it: [before, lately], null where one of them is unknown, or says
// little because there were few requests.
export const turn = (values, requests, typical) => {
  const at = Math.floor(values.length * 0.75);
  if (sum(requests.slice(0, at)) < ENOUGH || sum(requests.slice(at)) < ENOUGH) return null;
  const before = typical(values.slice(0, at), requests.slice(0, at)), lately = typical(values.slice(at), requests.slice(at));
  return before === null || lately === null ? null : [before, lately];
};

// The reasons to look at a scope, the worst first: { kind, grade: "bad" | "watch", weight, values… }.
export const reasons = (figures) => {
  const found = [], { requests } = figures;
  const failed = failures(figures), refused = refusals(figures);
  if (isFailing(figures)) found.push({ kind: "failing", grade: "bad", weight: 3 + failed / requests, share: failed / requests });
  if (refused >= FEWEST && refused / requests >= 0.2) found.push({ kind: "refused", grade: "watch", weight: 1 + refused / requests, share: refused / requests });
  const reuse = fall(figures);
  if (reuse) found.push({ kind: "reuse_fell", grade: "watch", weight: 2 + reuse.from - reuse.to, ...reuse });
  const times = turn(figures.points.ttft_p95, figures.points.requests, middle);
  if (times && times[1] >= 2 * times[0] && times[1] >= 0.5) found.push({ kind: "slower", grade: "watch", weight: 2 + Math.min(times[1] / times[0] / 10, 0.9), from: times[0], to: times[1] });
  return found.sort((a, b) => b.weight - a.weight);
};
// Reuse that fell to less than half: within the window, or against the window before it.
const fall = (figures) => {
  const whole = figures.requests < ENOUGH ? null : [figures.reuse_rate_before ?? null, figures.reuse_rate ?? null];
  const ways = [turn(figures.points.reuse_rate, figures.points.requests, mean), whole];
  for (const way of ways) if (way && way[0] !== null && way[1] !== null && way[0] >= 0.2 && way[1] < way[0] / 2) return { from: way[0], to: way[1] };
  return null;
};

// Requests a minute now: over the last whole points that cover a minute. Null where there are none.
export const requestsPerMinute = (requests, step) => {
  const wanted = Math.max(1, Math.ceil(60 / step)), whole = requests.slice(0, -1).slice(-wanted);
  return whole.length ? (whole.reduce((sum, value) => sum + value, 0) * 60) / (whole.length * step) : null;
};

// The alarms of the last day. An older one has been seen, and the gate tells of it for as long as it runs.
export const rung = (alarms, now) => alarms.filter(({ count, last }) => count > 0 && (last === null || now - last < 86_400));

// Whether the border holds, as far as it is watched: "alarm", "unproven", "intact", or null where nobody watches.
export const border = (alarms, now, engines) => {
  if (rung(alarms, now).length) return "alarm";
  const states = engines.flatMap((engine) => Object.values(engine.proofs));
  if (states.includes("failed") || states.includes("unknown")) return "unproven";
  return alarms.length || states.length ? "intact" : null;
};
