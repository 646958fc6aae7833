// The strip of figures at the top of a page: what is seen in three seconds.
import { attribute, el, miniColumns, miniHeat, miniTimes, svg, text } from "./draw.js";
import { border, failures, isFailing, isFailure, refusals, requestsPerMinute, rung } from "./judge.js";
import { compact, count, day, duration, percentagePoints, rate, share, UNKNOWN } from "./numbers.js";
import { say, sayCount, sayNamed } from "./words.js";

const tile = (name, mini = null, ...extra) => {
  const value = el("dd", { class: "tile-value" }), sub = el("dd", { class: "tile-sub" });
  const node = el("div", { class: `tile tile-${name}${mini ? " has-mini" : ""}` }, el("dt", {}, say(`tile.${name}`)), value, sub, ...(mini ? [el("dd", { class: "tile-mini" }, mini.node)] : []), ...extra);
  value.textContent = UNKNOWN;
  return { node, set: (shown, said = "") => { text(value, shown); text(sub, said); }, value, sub, mini };
};

const change = (now, before) => {
  if (now === null || before === null || now === undefined || before === undefined) return "";
  if (Math.abs(now - before) < 0.005) return say("tile.reuse.same");
  return say("tile.reuse.change", { points: percentagePoints(now - before) });
};

// The time is estimated from streams of the model, and unknown until there were some.
const savedOf = ({ prompt_tokens: prompt, prefill_seconds_saved: time }) =>
  say(time === null ? "tile.saved.of" : "tile.saved.sub", { prompt: compact(prompt), ...(time === null ? {} : { time: duration(time) }) });

// What part of the prompts was there already, as a bar.
const splitBar = () => {
  const part = svg("rect", { class: "split-reused", height: "100%", width: 0 });
  const node = svg("svg", { class: "mini split", "aria-hidden": "true" }, svg("rect", { class: "split-all", width: "100%", height: "100%" }), part);
  return { node, update: (rate) => attribute(part, "width", `${(rate ?? 0) * 100}%`) };
};

// { node, update(figures, { step, window, gate, refusals, alarms, engines }) } for a whole gate or one scope.
export const strip = (gate) => {
  const saved = tile("saved", splitBar()), requests = tile("requests", miniColumns()), times = tile("ttft", miniTimes()), reuse = tile("reuse", miniHeat());
  const p95 = el("span", { class: "tile-second" });
  const open = tile("open"), refused = tile("refused"), failed = tile("failed");
  const shield = svg("svg", { class: "shield", viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { class: "shield-body", d: "M12 2 4 5v6c0 5 3.4 9 8 11 4.6-2 8-6 8-11V5z" }), svg("path", { class: "shield-mark" }));
  const borders = tile("border", null, el("dd", { class: "tile-shield" }, shield));
  const tiles = gate ? [borders, saved, requests, times, reuse, open, failed, refused] : [saved, requests, times, reuse, open, failed, refused];
  const node = el("dl", { class: gate ? "strip strip-gate" : "strip" }, ...tiles.map((each) => each.node));
  node.setAttribute("aria-label", say("strip.label"));
  return {
    node,
    update: (figures, { now, step, window, gate: told, refusals: codes, alarms, engines }) => {
      saved.set(figures.requests ? compact(figures.reused_tokens) : UNKNOWN, figures.prompt_tokens ? savedOf(figures) : "");
      requests.set(rate(requestsPerMinute(figures.points.requests, step)), sayCount("tile.requests.sub", figures.requests, { count: compact(figures.requests), window: say(`window.${window}.in`) }));
      times.set(duration(figures.ttft_p50), "");
      text(p95, say("tile.ttft.p95", { time: duration(figures.ttft_p95) }));
      times.sub.replaceChildren(p95);
      reuse.set(share(figures.reuse_rate), change(figures.reuse_rate, figures.reuse_rate_before));
      open.set(count(figures.open_streams), told ? sayCount("tile.open.waiting", told.waiting ?? 0, { count: count(told.waiting) }) : "");
      const fails = failures(figures);
      failed.set(count(fails), figures.requests ? say("tile.failed.sub", { share: share(fails / figures.requests) }) : "");
      attribute(failed.node, "data-grade", isFailing(figures) ? "bad" : null);
      refused.set(count(refusals(figures)), codes.filter((each) => each.count > 0 && !isFailure(each.code)).slice(0, 2).map((each) => `${each.code} ${count(each.count)}`).join(", "));
      saved.mini.update(figures.reuse_rate);
      for (const each of [requests, times, reuse]) each.mini.update(figures.points);
      if (gate) updateBorder(borders, shield, alarms, now, engines);
    },
  };
};

const MARKS = { intact: "m8.5 12 2.5 2.5 4.5-5", alarm: "M12 7v6m0 3v.1", unproven: "M12 7v6m0 3v.1" };
const updateBorder = (tile, shield, alarms, now, engines) => {
  const state = border(alarms, now, engines), last = Math.max(0, ...alarms.map((alarm) => alarm.last ?? 0));
  attribute(tile.node, "data-state", state ?? "unknown");
  attribute(shield.lastChild, "d", MARKS[state] ?? "M8 12h8");
  const proven = engines.filter((engine) => engine.up).length;
  const up = say("tile.border.sub", { up: count(proven), all: count(engines.length) });
  const sub = state === "alarm" ? rung(alarms, now).map((alarm) => sayNamed("check", alarm.check)).join(" · ")
    : last ? `${up}. ${say("tile.border.last", { day: day(last) })}` : up;
  tile.set(state === null ? UNKNOWN : say(`tile.border.${state}`), sub);
};
