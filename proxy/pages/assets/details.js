// Everything that is known of one request, in words where words help.
import { el, svg } from "./draw.js";
import { scopeAddress } from "./frame.js";
import { count, dateTime, duration, share, UNKNOWN } from "./numbers.js";
import { bars, drawBars, extentOf, swatch } from "./waterfall.js";
import { isKnown, say, sayNamed } from "./words.js";

export const details = (request, level) =>
  el("div", { class: "details" }, explained(request, level), stages(request, level), tokens(request, level), facts(request));

const heading = (level, key) => el(`h${level}`, {}, say(key));

export const badge = (outcome) =>
  el("span", { class: "badge", "data-grade": { ok: "good", refused: "watch", client_gone: "soft", drained: "watch" }[outcome] ?? "bad" }, sayNamed("outcome", outcome));

const explained = (request, level) => {
  const code = request.refusal_code;
  return el("section", { class: "explained" }, heading(level, "details.outcome"),
    el("p", {}, badge(request.outcome), " ", isKnown(`explain.${request.outcome}`) ? say(`explain.${request.outcome}`) : ""),
    code === null ? null : el("p", {}, el("code", {}, code), " ", isKnown(`refusal.${code}`) ? say(`refusal.${code}`) : ""));
};

const stages = (request, level) => {
  const extent = extentOf([request], false);
  const rows = request.spans.map((span) => {
    const line = bars();
    drawBars(line, { spans: [span], duration: Math.min(span.start + span.duration, request.duration), outcome: "ok" }, extent);
    return el("tr", {}, el("th", { scope: "row" }, swatch(span.name), sayNamed("stage", span.name)), el("td", { class: "c-bars" }, line),
      el("td", { class: "number soft" }, `+${duration(span.start)}`), el("td", { class: "number" }, duration(span.duration)));
  });
  return el("section", { class: "stages" }, heading(level, "details.stages"),
    el("table", { "aria-label": say("details.stages") }, el("thead", { class: "unseen" }, el("tr", {}, ...["stage", "picture", "start", "took"].map((name) => el("th", { scope: "col" }, say(`details.${name}`))))), el("tbody", {}, ...rows)));
};

const tokens = (request, level) => {
  const { prompt_tokens: prompt, reused_tokens: reused, output_tokens: output } = request;
  const known = typeof prompt === "number" && typeof reused === "number" && prompt > 0;
  const bar = svg("svg", { class: "split", "aria-hidden": "true" }, svg("rect", { class: known ? "split-all" : "split-unknown", width: "100%", height: "100%" }),
    svg("rect", { class: "split-reused", width: known ? `${(reused / prompt) * 100}%` : 0, height: "100%" }));
  return el("section", { class: "tokens" }, heading(level, "details.tokens"), bar,
    pairs([["details.prompt", count(prompt)], ["details.reused", known ? `${count(reused)} (${share(reused / prompt)})` : count(reused)], ["details.output", count(output)],
      ["details.ttft", request.ttft === null ? UNKNOWN : request.ttft_kind === null ? duration(request.ttft) : `${duration(request.ttft)} · ${sayNamed("kind", request.ttft_kind)}`],
      ["details.upstream_ttft", duration(request.upstream_ttft)], ["details.largest_gap", duration(request.largest_gap)], ["details.duration", duration(request.duration)]]));
};

const facts = (request) => {
  const named = request.workspace !== null && request.project !== null;
  const scope = named ? el("a", { href: scopeAddress(request.workspace, request.project) }, `${request.workspace} / ${request.project}`) : UNKNOWN;
  const answer = [request.status, request.operation, request.stream ? say("details.stream") : say("details.at_once")].filter((each) => each !== null).join(" · ");
  const salt = request.salt_fingerprint === null ? UNKNOWN : el("span", {}, copied(request.salt_fingerprint), " ", say("details.epoch", { epoch: request.salt_epoch ?? UNKNOWN }));
  return pairs([["details.request_id", copied(request.request_id)], ["details.trace_id", copied(request.trace_id)], ["details.started", dateTime(request.started)],
    ["details.scope", scope], ["details.unit", request.unit ?? UNKNOWN], ["details.model", request.model ?? UNKNOWN], ["details.answer", answer], ["details.engine", request.engine ?? UNKNOWN],
    ["details.salt", salt], ["details.finish", request.finish_reasons.join(", ") || UNKNOWN], ["details.error_type", request.error_type ?? UNKNOWN]]);
};

const pairs = (entries) => el("dl", { class: "pairs" }, ...entries.flatMap(([key, value]) => [el("dt", {}, say(key)), el("dd", {}, value)]));

// An id, and a button that copies it. Where the page may not, the id is selected instead.
const copied = (id) => {
  const shown = el("code", {}, id), button = el("button", { type: "button", class: "copy" }, say("copy"));
  button.setAttribute("aria-label", say("copy.label", { id }));
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(id);
    } catch {
      getSelection().selectAllChildren(shown);
      return;
    }
    button.textContent = say("copy.done");
    setTimeout(() => { button.textContent = say("copy"); }, 2000);
  });
  return el("span", { class: "copied" }, shown, button);
};
