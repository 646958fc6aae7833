// Larger charts over the window, read with the pointer or with the arrow keys; charts of one page share the moment read.
import { attribute, bandPath, columnsPath, el, largest, linePath, onlyLast, svg, text } from "./draw.js";
import { clock, compact, duration, share } from "./numbers.js";
import { say, sayCount } from "./words.js";

const HEIGHT = 176, LEFT = 56, RIGHT = 12, TOP = 10, BOTTOM = 24;
const TIME_STEPS = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600];

// The moment that is read on all charts of a page.
export const cursor = () => {
  const charts = [];
  return { add: (chart) => charts.push(chart), move: (index) => charts.forEach((chart) => chart.mark(index)) };
};

// When the point begins. The last one is the one that is still being filled.
export const pointStart = ({ now, step }, points, index) => (Math.floor(now / step) - (points - 1 - index)) * step;

// A round number of at least `value`, and the steps to it.
const scaleTo = (value) => {
  const size = 10 ** Math.floor(Math.log10(value));
  const top = [1, 2, 2.5, 5, 10].find((each) => each * size >= value) * size;
  return [0, top / 2, top];
};

const KINDS = {
  requests: {
    lists: ["requests", "failed"],
    ticks: ({ requests }) => scaleTo(largest(requests, [2])),
    tick: compact,
    draw: (layer, { requests, failed }, x, y, step) => {
      const fine = requests.map((value, index) => value - (failed[index] ?? 0)), left = (index) => x(index) - step * 0.39;
      attribute(layer.b, "d", columnsPath(fine.slice(0, -1), failed, left, y, step * 0.78));
      attribute(layer.band, "d", columnsPath(onlyLast(fine), failed, left, y, step * 0.78));
      attribute(layer.a, "d", columnsPath(failed, [], left, y, step * 0.78));
    },
    read: ({ requests, failed }, index) => `${sayCount("read.requests", requests[index], { count: compact(requests[index]) })} · ${say("read.failed", { count: compact(failed[index]) })}`,
  },
  ttft: {
    lists: ["ttft_p50", "ttft_p95"],
    ticks: ({ ttft_p50, ttft_p95 }) => scaleTo(largest(ttft_p50, ttft_p95) || 1),
    tick: duration,
    draw: (layer, { ttft_p50, ttft_p95 }, x, y) => {
      attribute(layer.band, "d", bandPath(ttft_p50, ttft_p95, x, y));
      attribute(layer.a, "d", linePath(ttft_p95, x, y));
      attribute(layer.b, "d", linePath(ttft_p50, x, y));
    },
    read: ({ ttft_p50, ttft_p95 }, index) => `p50 ${duration(ttft_p50[index])} · p95 ${duration(ttft_p95[index])}`,
  },
  reuse: {
    lists: ["reuse_rate"],
    ticks: () => [0, 0.5, 1],
    tick: share,
    draw: (layer, { reuse_rate }, x, y) => {
      attribute(layer.band, "d", bandPath(reuse_rate.map((value) => (value === null ? null : 0)), reuse_rate, x, y));
      attribute(layer.b, "d", linePath(reuse_rate, x, y));
    },
    read: ({ reuse_rate }, index) => share(reuse_rate[index]),
  },
};

export const chart = (name, shared) => {
  const kind = KINDS[name], title = say(`chart.${name}`);
  const readout = el("output", { class: "readout" });
  const layer = { band: svg("path", { class: "band" }), a: svg("path", { class: "first" }), b: svg("path", { class: "second" }) };
  const grid = svg("g", { class: "grid" }), marked = svg("path", { class: "marked" });
  const drawing = svg("svg", { height: HEIGHT, "aria-hidden": "true" }, grid, layer.band, layer.a, layer.b, marked);
  const plot = el("div", { class: "plot", tabindex: 0, role: "slider", "aria-label": say("chart.label", { title }), "aria-valuemin": 0, "aria-valuemax": 0, "aria-valuenow": 0 }, drawing);
  const node = el("figure", { class: `chart chart-${name}` }, el("figcaption", {}, el("h2", {}, title), readout), plot);
  let data = null, at = null, width = 0;

  const points = () => data.points[kind.lists[0]].length;
  const stepWidth = () => (width - LEFT - RIGHT) / points();
  const x = (index) => LEFT + (index + 0.5) * stepWidth();
  const redraw = () => {
    if (!data || width < LEFT + RIGHT + 40) return;
    const ticks = kind.ticks(data.points), top = ticks.at(-1);
    const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
    attribute(drawing, "width", width);
    grid.replaceChildren(...ticks.flatMap((tick) => across(y(tick), kind.tick(tick))), ...times());
    kind.draw(layer, data.points, x, y, stepWidth());
    mark(at);
  };
  const across = (y, label) => [
    svg("path", { d: `M${LEFT} ${y}H${width - RIGHT}` }),
    written(LEFT - 8, y + 4, "end", label),
  ];
  const written = (left, top, anchor, label) => {
    const node = svg("text", { x: left, y: top, "text-anchor": anchor });
    node.textContent = label;
    return node;
  };
  const times = () => {
    const from = pointStart(data, points(), 0), seconds = points() * data.step, most = Math.max(2, Math.floor((width - LEFT) / 90));
    const step = TIME_STEPS.find((each) => seconds / each <= most) ?? TIME_STEPS.at(-1);
    const zone = new Date(data.now * 1e3).getTimezoneOffset() * 60, marks = [];
    for (let time = Math.ceil((from - zone) / step) * step + zone; time < from + seconds; time += step) {
      const left = LEFT + ((time - from) / data.step) * stepWidth();
      if (left > LEFT + 14 && left < width - RIGHT - 14) marks.push(written(left, HEIGHT - 6, "middle", clock(time)));
    }
    return marks;
  };
  const mark = (index) => {
    at = index === null || !data ? null : Math.min(Math.max(index, 0), points() - 1);
    if (!data) return;
    const last = at ?? points() - 1;
    const said = `${clock(pointStart(data, points(), last))} · ${kind.read(data.points, last)}`;
    text(readout, said);
    attribute(marked, "d", at === null ? null : `M${Math.round(x(at)) + 0.5} ${TOP}V${HEIGHT - BOTTOM}`);
    for (const [key, value] of [["valuemax", points() - 1], ["valuenow", last], ["valuetext", said]]) attribute(plot, `aria-${key}`, value);
  };

  new ResizeObserver(([entry]) => { width = Math.floor(entry.contentRect.width); redraw(); }).observe(plot);
  plot.addEventListener("pointermove", (event) => {
    if (data) shared.move(Math.floor((event.clientX - plot.getBoundingClientRect().left - LEFT) / stepWidth()));
  });
  plot.addEventListener("pointerleave", () => shared.move(null));
  plot.addEventListener("blur", () => shared.move(null));
  plot.addEventListener("keydown", (event) => {
    if (!data) return;
    const from = at ?? points() - 1;
    const to = { ArrowLeft: from - 1, ArrowDown: from - 1, ArrowRight: from + 1, ArrowUp: from + 1, Home: 0, End: points() - 1, PageDown: from - 10, PageUp: from + 10 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    shared.move(to);
  });
  const self = { node, mark, update: (answer) => { data = answer; redraw(); } };
  shared.add(self);
  return self;
};
