// The whole gate: what it did in the window, and which scopes want looking at.
import { el, keyed, text } from "./draw.js";
import { chosenWindow, notice, showAlarms, showFoot } from "./frame.js";
import { border, rung } from "./judge.js";
import { count, moment } from "./numbers.js";
import { scopeTable } from "./scopes.js";
import { strip } from "./tiles.js";
import { say, sayCount, sayNamed } from "./words.js";

export const address = () => `/api/overview?window=${chosenWindow()}`;

// Draws it empty at once; what it gives back is called with each answer.
export const open = (main) => {
  const figures = strip(true), table = scopeTable();
  const lead = el("p", { class: "lead" }), empty = notice("empty");
  const engines = panel("engines"), codes = panel("codes");
  const below = el("div", { class: "panels" }, engines.node, codes.node);
  empty.hidden = true;
  main.append(el("h1", { class: "unseen" }, say("overview.title")), lead, figures.node, empty, table.node, below);
  return (data) => {
    showAlarms(data.alarms, data.now, "");
    const [grade, sentence] = verdict(data, table.update(data));
    text(lead, sentence);
    lead.dataset.grade = grade;
    figures.update(data.total, { ...data, window: data.window });
    const none = data.workspaces.length === 0;
    empty.hidden = !none;
    table.node.hidden = none;
    engines.fill(data.engines, (engine) => `${engine.engine} ${engine.replica}`, drawEngine, updateEngine);
    codes.fill(data.refusals.filter((each) => each.count > 0), (each) => each.code, drawCode, updateCode);
    const { version, workers, kept_in: keptIn } = data.gate;
    showFoot([`saltgate ${version}`, sayCount("foot.workers", workers, { count: count(workers) }), sayNamed("foot.kept", keptIn), ...(data.gate.untold ? [sayCount("foot.untold", data.gate.untold, { count: count(data.gate.untold) })] : []), say("foot.since", { time: moment(data.since) })]);
  };
};

// The worst there is to say, in one sentence.
const verdict = ({ gate, alarms, engines, now }, watched) => {
  const down = engines.filter((engine) => !engine.up).length;
  if (rung(alarms, now).length) return ["bad", say("alarm.title")];
  if (!gate.ready) return ["bad", say("verdict.not_ready", { parts: gate.waits_for.join(", ") })];
  if (down) return ["bad", sayCount("verdict.down", down, { count: count(down) })];
  if (watched) return ["watch", sayCount("verdict.watched", watched, { count: count(watched) })];
  if (border(alarms, now, engines) === "unproven") return ["watch", say("verdict.unproven")];
  return ["good", say("verdict.calm")];
};

const panel = (name) => {
  const list = el("ul"), none = el("p", { class: "soft" }, say(`${name}.none`)), kept = new Map();
  return {
    node: el("section", { class: "panel" }, el("h2", {}, say(`${name}.title`)), list, none),
    fill: (items, key, make, update) => {
      keyed(list, kept, items, key, make, update);
      none.hidden = items.length > 0;
    },
  };
};

const drawEngine = () => {
  const name = el("span", { class: "engine-name" }), state = el("span", { class: "badge" }), proofs = el("span", { class: "soft" });
  return { node: el("li", {}, el("span", {}, name), state, proofs), name, state, proofs };
};
const updateEngine = ({ name, state, proofs }, engine) => {
  text(name, `${engine.engine} · ${engine.replica}`);
  text(state, say(engine.up ? "engine.up" : "engine.down"));
  state.dataset.grade = engine.up ? "good" : "bad";
  const counts = new Map();
  for (const told of Object.values(engine.proofs)) counts.set(told, (counts.get(told) ?? 0) + 1);
  text(proofs, [...counts].map(([told, number]) => `${count(number)} ${sayNamed("proof", told)}`).join(" · "));
};
const drawCode = () => {
  const code = el("code"), number = el("strong"), why = el("span", { class: "soft" });
  return { node: el("li", {}, code, number, why), code, number, why };
};
const updateCode = ({ code, number, why }, told) => {
  text(code, told.code);
  text(number, count(told.count));
  text(why, sayNamed("refusal", told.code));
};
