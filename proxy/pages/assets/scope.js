// One project: the figures over time, its models, what was refused, and its recent requests as waterfalls.
import { chart, cursor } from "./chart.js";
import { badge, details } from "./details.js";
import { attribute, el, keyed, text } from "./draw.js";
import { chosenWindow, notice, requestAddress, rowKeys, showAlarms, showFoot } from "./frame.js";
import { reasons } from "./judge.js";
import { compact, count, duration, fineClock, moment, share, UNKNOWN } from "./numbers.js";
import { reasonText } from "./reasons.js";
import { strip } from "./tiles.js";
import { bars, drawBars, drawLegend, extentOf, legend } from "./waterfall.js";
import { say, sayCount, sayNamed } from "./words.js";

export const scopePage = (workspace, project) => ({
  address: () => `/api/scopes/${encodeURIComponent(workspace)}/${encodeURIComponent(project)}?window=${chosenWindow()}`,
  missing: "scope_missing",
  open: (main) => {
    const figures = strip(false), shared = cursor(), charts = ["requests", "ttft", "reuse"].map((name) => chart(name, shared));
    const models = table("models", ["model", "requests", "ttft", "reuse", "saved"], modelCells);
    const codes = table("codes", ["code", "count", "meaning"], (told) => [el("code", {}, told.code), count(told.count), sayNamed("refusal", told.code)]);
    const recent = recentRequests(), why = el("ul", { class: "reasons" }), empty = notice("empty_scope");
    empty.hidden = true;
    main.append(
      el("p", { class: "crumbs" }, el("a", { href: "/" }, say("overview.title")), " › ", el("span", {}, workspace)),
      el("h1", {}, el("span", { class: "of" }, `${workspace} / `), project), why, figures.node, empty,
      el("div", { class: "charts" }, ...charts.map((each) => each.node)), recent.node, el("div", { class: "panels" }, models.node, codes.node));
    return (data) => {
      showAlarms(data.alarms, data.now, `${workspace} / ${project}`);
      const found = reasons(data);
      if (why.dataset.shown !== JSON.stringify(found)) {
        why.dataset.shown = JSON.stringify(found);
        why.replaceChildren(...found.map((each) => el("li", { class: "why", "data-grade": each.grade }, reasonText(each))));
      }
      figures.update(data, { ...data, gate: null, alarms: [], engines: [] });
      empty.hidden = data.requests > 0 || data.recent.length > 0;
      for (const each of charts) each.update(data);
      models.fill(data.models, (each) => each.model);
      codes.fill(data.refusals.filter((each) => each.count > 0), (each) => each.code);
      recent.update(data.recent);
      showFoot([say("foot.since", { time: moment(data.since) })]);
    };
  },
});

const modelCells = (told) => [told.model, count(told.requests), `${duration(told.ttft_p50)} / ${duration(told.ttft_p95)}`, share(told.reuse_rate), told.requests ? compact(told.reused_tokens) : UNKNOWN];

const table = (name, columns, cells) => {
  const body = el("tbody"), kept = new Map(), none = el("p", { class: "soft" }, say(`${name}.none`));
  const make = () => {
    const places = columns.map((_, index) => el(index ? "td" : "th", index ? {} : { scope: "row" }));
    return { node: el("tr", {}, ...places), places };
  };
  const update = ({ places }, told) => cells(told).forEach((value, index) => {
    if (typeof value === "string") text(places[index], value);
    else if (!places[index].firstChild) places[index].append(value);
  });
  const whole = el("table", { class: `plain plain-${name}`, "aria-label": say(`${name}.title`) }, el("thead", {}, el("tr", {}, ...columns.map((column) => el("th", { scope: "col" }, say(`column.${column}`))))), body);
  return {
    node: el("section", { class: "panel" }, el("h2", {}, say(`${name}.title`)), whole, none),
    fill: (items, key) => {
      keyed(body, kept, items, key, make, update);
      whole.hidden = items.length === 0;
      none.hidden = items.length > 0;
    },
  };
};

const recentRequests = () => {
  let all = [], shown = [], whole = false, onlyBad = false, opened = new Set();
  const kept = new Map(), body = el("tbody"), colours = legend(), newer = el("button", { type: "button", class: "quiet" });
  const none = el("p", { class: "soft padded" }, say("recent.none"));
  newer.hidden = true;
  newer.addEventListener("click", () => { show(all); body.querySelector("button.open")?.focus(); });
  const heads = ["time", "outcome", "model", "waterfall", "first", "duration", "reused"].map((name) => el("th", { scope: "col", class: `r-${name}` }, say(`column.${name}`)));
  const node = el("section", { class: "card", "aria-labelledby": "recent-title" },
    el("div", { class: "card-head" }, el("h2", { id: "recent-title" }, say("recent.title")), colours,
      choice("extent", ["first", "whole"], (name) => { whole = name === "whole"; show(shown); }),
      choice("which", ["all", "bad"], (name) => { onlyBad = name === "bad"; show(all); }), newer),
    el("table", { class: "recent" }, el("caption", { class: "unseen" }, say("recent.caption")), el("thead", {}, el("tr", {}, ...heads)), body), none);
  const settle = rowKeys(body, "button.open");

  // While somebody reads, nothing moves: newer requests wait behind a button.
  const busy = () => opened.size > 0 || body.matches(":hover") || body.contains(document.activeElement);
  const update = (requests) => {
    all = requests;
    const known = new Set(shown.map((each) => each.request_id)), more = wanted(all).filter((each) => !known.has(each.request_id)).length;
    if (shown.length && more && busy()) {
      newer.hidden = false;
      text(newer, sayCount("recent.newer", more, { count: count(more) }));
    } else show(all);
  };
  const wanted = (requests) => requests.filter((each) => !onlyBad || each.outcome !== "ok");
  const show = (requests) => {
    shown = wanted(requests);
    newer.hidden = true;
    const extent = extentOf(shown, whole);
    keyed(body, kept, shown.flatMap((each) => (opened.has(each.request_id) ? [each, { below: each }] : [each])),
      (each) => (each.below ? `${each.below.request_id} below` : each.request_id), makeRow, (part, each) => { if (part.bars) drawBars(part.bars, each, extent); });
    drawLegend(colours, shown);
    none.hidden = shown.length > 0;
    settle();
  };
  const toggle = (requestId) => {
    if (!opened.delete(requestId)) opened.add(requestId);
    attribute(kept.get(requestId).button, "aria-expanded", String(opened.has(requestId)));
    show(shown);
  };
  const makeRow = (request) => {
    if (request.below) return { node: el("tr", { class: "below", id: `below-${request.below.request_id}` }, el("td", { colspan: heads.length }, details(request.below, 3), el("p", { class: "padded" }, el("a", { href: requestAddress(request.below.request_id) }, say("recent.link"))))) };
    const button = el("button", { type: "button", class: "open", "aria-expanded": "false", "aria-controls": `below-${request.request_id}` }, fineClock(request.started));
    button.setAttribute("aria-label", say("recent.open", { time: fineClock(request.started), outcome: sayNamed("outcome", request.outcome) }));
    const line = bars(), share_ = request.prompt_tokens ? share(request.reused_tokens === null ? null : request.reused_tokens / request.prompt_tokens) : UNKNOWN;
    const cell = (name, ...children) => el("td", { class: `r-${name}`, "data-name": say(`column.${name}`) }, ...children);
    const node = el("tr", {}, el("th", { scope: "row", class: "r-time" }, button), cell("outcome", badge(request.outcome)), cell("model", request.model ?? UNKNOWN), cell("waterfall", line),
      cell("first", duration(request.ttft)), cell("duration", duration(request.duration)), cell("reused", share_));
    node.addEventListener("click", (event) => { if (!getSelection().toString()) toggle(request.request_id); event.stopPropagation(); });
    return { node, bars: line, button };
  };
  return { node, update };
};

const choice = (name, values, chosen) => {
  const node = el("fieldset", { class: "segments" }, el("legend", { class: "unseen" }, say(`${name}.label`)));
  values.forEach((value, index) => {
    const radio = el("input", { type: "radio", name, id: `${name}-${value}`, value, class: "unseen" });
    radio.checked = index === 0;
    radio.addEventListener("change", () => chosen(value));
    node.append(radio, el("label", { for: radio.id }, say(`${name}.${value}`)));
  });
  return node;
};
