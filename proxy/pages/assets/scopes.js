// The table of workspaces and projects: sorted by what needs looking at, filtered, and never longer than is read.
import { attribute, el, HEATS, heatOf, keyed, miniColumns, miniHeat, miniTimes, text } from "./draw.js";
import { rowKeys, scopeAddress } from "./frame.js";
import { failures, isFailing, reasons } from "./judge.js";
import { compact, count, duration, percentagePoints, share } from "./numbers.js";
import { reasonText } from "./reasons.js";
import { say, sayCount } from "./words.js";

const FIRST = 40; // rows that are drawn before somebody asks for all, and that are made in one frame
const PAGE = 100; // rows that are there at a time, however many there are

const SORTS = {
  look: (row) => row.weight,
  requests: (row) => row.figures.requests,
  failed: (row) => failures(row.figures),
  ttft: (row) => row.figures.ttft_p95 ?? -1,
  reuse: (row) => row.figures.reuse_rate ?? -1,
  saved: (row) => row.figures.reused_tokens,
  open: (row) => row.figures.open_streams,
};
const COLUMNS = ["look", "requests", "failed", "ttft", "reuse", "saved", "open"];

// The rows of an answer: a workspace with its projects below it, or one row for both where it has only one.
const rowsOf = (data, sort, filter) => {
  const weigh = SORTS[sort], groups = [];
  for (const { projects, ...workspace } of data.workspaces) {
    const shown = projects.filter((each) => !filter || `${workspace.workspace}/${each.project}`.toLowerCase().includes(filter));
    if (!shown.length) continue;
    const rows = shown.map((figures) => row(workspace.workspace, figures.project, figures)).sort((a, b) => weigh(b) - weigh(a) || b.figures.requests - a.figures.requests);
    const head = row(workspace.workspace, null, workspace);
    const weight = sort === "look" ? Math.max(...rows.map((each) => each.weight)) : weigh(head);
    groups.push({ weight, requests: workspace.requests, rows: projects.length > 1 ? [head, ...rows] : rows.map((each) => ({ ...each, alone: true })) });
  }
  for (const name of ["unscoped", "other"]) {
    if (data[name] && !filter) groups.push({ weight: -2, requests: 0, rows: [{ ...row(null, null, data[name]), key: name, name }] });
  }
  return groups.sort((a, b) => b.weight - a.weight || b.requests - a.requests).flatMap((group) => group.rows);
};
// Some of the rows, each with its place among all. A workspace that goes on from the page before is named again.
const pageOf = (rows, from, to) => {
  const shown = rows.slice(from, to).map((each, at) => ({ ...each, place: from + at + 2 })), [first] = shown;
  const head = first && first.project !== null && !first.alone ? rows.findLastIndex((each, at) => at < from && each.project === null && each.workspace === first.workspace) : -1;
  return head < 0 ? shown : [{ ...rows[head], place: head + 2 }, ...shown];
};
const row = (workspace, project, figures) => {
  const why = figures.points ? reasons(figures) : [];
  return { key: JSON.stringify([workspace, project]), workspace, project, figures, why, weight: why.reduce((sum, each) => sum + each.weight, 0) };
};

export const scopeTable = () => {
  let data = null, sort = "look", filter = "", all = false, held = null, page = 0, pending = 0;
  const kept = new Map();
  const heads = new Map(COLUMNS.map((name) => {
    const button = el("button", { type: "button" }, say(`column.${name}`));
    button.addEventListener("click", () => { sort = name; turn(0); });
    return [name, el("th", { scope: "col", role: "columnheader", class: `c-${name}` }, button)];
  }));
  const body = el("tbody", { role: "rowgroup" });
  const table = el("table", { class: "scopes", role: "table" },
    el("caption", { class: "unseen" }, say("scopes.caption")),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...heads.values())), body);
  const box = el("input", { id: "filter", type: "search", autocomplete: "off", spellcheck: "false", placeholder: say("filter.hint") });
  box.addEventListener("input", () => { filter = box.value.trim().toLowerCase(); turn(0); });
  const matches = el("p", { class: "soft", role: "status" });
  const more = el("button", { type: "button", class: "quiet" });
  more.addEventListener("click", () => { all = true; [...body.querySelectorAll("a.scope")].at(-1)?.focus({ preventScroll: true }); draw(); });
  const turned = (way) => { turn(page + way); node.scrollIntoView(); };
  const [before, after] = ["before", "after"].map((name, at) => {
    const button = el("button", { type: "button", class: "quiet" }, say(`pages.${name}`));
    button.addEventListener("click", () => { if (!button.ariaDisabled) turned(at * 2 - 1); });
    return button;
  });
  const place = el("span", { class: "soft", role: "status" }), pager = el("nav", { class: "pages", "aria-label": say("pages.label") }, before, place, after);
  const node = el("section", { class: "card", "aria-labelledby": "scopes-title" },
    el("div", { class: "card-head" }, el("h2", { id: "scopes-title" }, say("scopes.title")), heatLegend(), el("label", { class: "unseen", for: "filter" }, say("filter.label")), box, matches),
    table, more, pager);
  const settle = rowKeys(body, "a.scope");

  // Only charts on the screen are redrawn; the others are when they come into it.
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const part = target.part;
      part.visible = isIntersecting;
      if (isIntersecting) drawCharts(part);
    }
  }, { rootMargin: "200px" });

  // Rows keep their places while somebody points at them or is in them with the keyboard.
  const busy = () => body.matches(":hover") || body.contains(document.activeElement);
  for (const left of ["focusout", "pointerleave"]) body.addEventListener(left, () => setTimeout(() => { if (!busy()) draw(); }));

  const turn = (to) => { page = to; held = null; draw(); };
  const draw = () => {
    if (!data) return;
    let rows = rowsOf(data, sort, filter);
    if (held && busy()) {
      const places = new Map(held.map((key, index) => [key, index]));
      rows = rows.map((each, index) => [each, places.get(each.key) ?? held.length + index]).sort((a, b) => a[1] - b[1]).map(([each]) => each);
    }
    held = rows.map((each) => each.key);
    const size = all ? PAGE : FIRST, last = Math.max(0, Math.ceil(rows.length / size) - 1);
    page = all ? Math.min(page, last) : 0;
    const from = page * size, to = Math.min(from + size, rows.length);
    grow(pageOf(rows, from, to), FIRST);
    more.hidden = all || !last;
    text(more, sayCount("scopes.all", rows.length, { count: count(rows.length) }));
    pager.hidden = !all || !last;
    text(place, say("pages.shown", { from: count(from + 1), to: count(to), all: count(rows.length) }));
    attribute(before, "aria-disabled", page === 0 ? "true" : null);
    attribute(after, "aria-disabled", page === last ? "true" : null);
    attribute(table, "aria-rowcount", last ? rows.length + 1 : null);
    const projects = rows.filter((each) => each.project !== null).length;
    text(matches, filter ? sayCount("filter.matches", projects, { count: count(projects) }) : "");
    for (const [name, head] of heads) attribute(head, "aria-sort", name === sort ? "descending" : null);
  };

  // The first rows at once, the others frame by frame: typing and scrolling go on meanwhile.
  const grow = (rows, limit) => {
    cancelAnimationFrame(pending);
    keyed(body, kept, rows.slice(0, limit), (each) => each.key, make, update);
    if (limit < rows.length) pending = requestAnimationFrame(() => grow(rows, limit + FIRST));
    else settle();
  };

  const make = (told) => {
    const part = makeRow(told);
    part.node.part = part;
    part.visible = kept.size < FIRST;
    seen.observe(part.node);
    return part;
  };
  const update = (part, told) => {
    if (part.told === told) return;
    part.told = told;
    fill(part, told);
    part.late = told;
    if (part.visible) drawCharts(part);
  };

  return {
    node,
    // Draws the answer; gives back how many scopes want looking at.
    update: (answer) => {
      data = answer;
      draw();
      return answer.workspaces.flatMap((each) => each.projects).filter((each) => reasons(each).length).length;
    },
  };
};

const heatLegend = () =>
  el("p", { class: "heat-legend soft", "aria-hidden": "true" }, say("heat.less"), ...Array.from({ length: HEATS }, (_, heat) => el("i", { class: `heat-swatch heat-${heat}` })), say("heat.more"));

const makeRow = ({ workspace, project, alone, name: rest }) => {
  const cell = (name, ...children) => el("td", { role: "cell", class: `c-${name}`, "data-name": say(`column.${name}`) }, ...children);
  const why = el("span", { class: "why" });
  const columns = miniColumns(), times = miniTimes(), heat = miniHeat();
  const [requests, failed, p50, p95, rate, delta, saved, spared, open] = Array.from({ length: 9 }, () => el("span"));
  p95.className = spared.className = "soft";
  delta.className = "delta";
  rate.className = "rate";
  const name = workspace === null ? el("span", { class: "scope" }, say(`scopes.${rest}`))
    : project === null ? el("span", { class: "scope workspace" }, workspace)
    : el("a", { class: "scope", href: scopeAddress(workspace, project) }, ...(alone ? [el("span", { class: "of" }, workspace), el("span", { class: "slash" }, "/")] : []), project);
  const node = el("tr", { role: "row", class: project === null ? "group" : alone ? "alone" : "member" },
    el("th", { scope: "row", role: "rowheader", class: "c-look" }, name, why),
    cell("requests", requests, columns.node), cell("failed", failed), cell("ttft", el("span", { class: "pair" }, p50, p95), times.node),
    cell("reuse", el("span", { class: "pair" }, rate, delta), heat.node), cell("saved", saved, spared), cell("open", open));
  return { node, name, why, columns, times, heat, requests, failed, p50, p95, rate, delta, saved, spared, open };
};

const fill = (part, { workspace, project, figures, why, place }) => {
  attribute(part.node, "aria-rowindex", place);
  if (project !== null && workspace !== null) attribute(part.name, "href", scopeAddress(workspace, project));
  const fails = failures(figures), [worst] = project === null ? [] : why;
  text(part.why, worst ? reasonText(worst) : "");
  attribute(part.node, "data-grade", worst?.grade ?? null);
  text(part.requests, compact(figures.requests));
  text(part.failed, fails ? `${count(fails)} · ${share(fails / figures.requests)}` : count(0));
  attribute(part.failed, "class", isFailing(figures) ? "is-bad" : fails ? null : "soft");
  text(part.p50, duration(figures.ttft_p50));
  text(part.p95, duration(figures.ttft_p95));
  text(part.rate, share(figures.reuse_rate));
  attribute(part.rate, "data-heat", figures.reuse_rate === null ? null : heatOf(figures.reuse_rate));
  const gap = figures.reuse_rate === null || (figures.reuse_rate_before ?? null) === null ? null : figures.reuse_rate - figures.reuse_rate_before;
  text(part.delta, gap === null || Math.abs(gap) < 0.005 ? "" : say("delta", { points: percentagePoints(gap) }));
  attribute(part.delta, "data-way", gap === null ? null : gap < 0 ? "down" : "up");
  text(part.saved, figures.requests ? compact(figures.reused_tokens) : compact(null));
  text(part.spared, duration(figures.prefill_seconds_saved));
  text(part.open, count(figures.open_streams));
};
const drawCharts = (part) => {
  const points = part.late?.figures.points;
  part.late = null;
  if (points) for (const each of [part.columns, part.times, part.heat]) each.update(points);
};
