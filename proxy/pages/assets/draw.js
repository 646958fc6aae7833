// Elements made one by one: text stays text, whatever a name holds.
const SVG = "http://www.w3.org/2000/svg";

const made = (node, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) attribute(node, name, value);
  node.append(...children.filter((child) => child !== null));
  return node;
};
export const el = (name, attributes = {}, ...children) => made(document.createElement(name), attributes, children);
export const svg = (name, attributes = {}, ...children) => made(document.createElementNS(SVG, name), attributes, children);

// Only what changed is touched: nothing flickers, and a selection stays.
export const attribute = (node, name, value) => {
  if (value === null || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value === true ? "" : String(value));
};
export const text = (node, value) => {
  if (node.textContent !== value) node.textContent = value;
};

// Makes the children of `parent` those of `items`, in their order, keeping the nodes whose key was there before.
export const keyed = (parent, kept, items, key, make, update) => {
  const keys = new Set(items.map(key));
  for (const [old, part] of kept) if (!keys.has(old)) { part.node.remove(); kept.delete(old); }
  let before = parent.firstElementChild;
  for (const item of items) {
    let part = kept.get(key(item));
    if (!part) kept.set(key(item), (part = make(item)));
    update(part, item);
    if (part.node === before) before = before.nextElementSibling;
    else parent.insertBefore(part.node, before);
  }
};

const round = (value) => Math.round(value * 100) / 100;
export const largest = (...lists) => Math.max(0, ...lists.flat().filter((value) => value !== null && value !== undefined));

// A line through the known points; gaps stay gaps, and a lone point is a short dash. `x`, `y` map to coordinates.
export const linePath = (values, x, y) => {
  let path = "", open = false;
  values.forEach((value, index) => {
    if (value === null) { open = false; return; }
    const at = `${round(x(index))} ${round(y(value))}`;
    path += open ? `L${at}` : `M${at}`;
    if (!open && (values[index + 1] ?? null) === null) path += `h.01`;
    open = true;
  });
  return path;
};
// The area between two lines, where both are known.
export const bandPath = (lower, upper, x, y) => {
  let path = "", from = 0;
  for (let index = 0; index <= lower.length; index++) {
    const whole = index < lower.length && (lower[index] ?? null) !== null && (upper[index] ?? null) !== null;
    if (whole) continue;
    if (index - from > 1) {
      const there = [], back = [];
      for (let each = from; each < index; each++) {
        there.push(`${round(x(each))} ${round(y(upper[each]))}`);
        back.unshift(`${round(x(each))} ${round(y(lower[each]))}`);
      }
      path += `M${[...there, ...back].join("L")}Z`;
    }
    from = index + 1;
  }
  return path;
};
export const columnsPath = (values, base, x, y, width) =>
  values.map((value, index) => {
    const low = y(base[index] ?? 0), high = y((base[index] ?? 0) + (value ?? 0));
    return value > 0 ? `M${round(x(index))} ${round(low)}v${round(high - low)}h${round(width)}V${round(low)}z` : "";
  }).join("");

// The point that is still being filled is drawn apart, lest it look like a fall.
export const onlyLast = (values) => values.map((value, index) => (index === values.length - 1 ? value : 0));

const canvas = (kind, width, height, ...paths) =>
  svg("svg", { class: `mini ${kind}`, viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...paths);

// Small multiples. Each is { node, update(points) }; beside each stands its figure, so they are hidden from readers.
export const miniColumns = () => {
  const good = svg("path", { class: "column" }), now = svg("path", { class: "column unfinished" }), bad = svg("path", { class: "column-bad" });
  const node = canvas("mini-columns", 100, 24, good, now, bad);
  return {
    node,
    update: ({ requests, failed }) => {
      const top = largest(requests) || 1, step = 100 / requests.length;
      const y = (value) => 24 - (value / top) * 23, x = (index) => index * step;
      const fine = requests.map((value, index) => value - (failed[index] ?? 0));
      attribute(good, "d", columnsPath(fine.slice(0, -1), failed, x, y, step * 0.78));
      attribute(now, "d", columnsPath(onlyLast(fine), failed, x, y, step * 0.78));
      attribute(bad, "d", columnsPath(failed, [], x, y, step * 0.78));
    },
  };
};
export const miniTimes = () => {
  const band = svg("path", { class: "time-band" }), line = svg("path", { class: "time-line" });
  const node = canvas("mini-times", 100, 24, band, line);
  return {
    node,
    update: ({ ttft_p50, ttft_p95 }) => {
      const top = largest(ttft_p50, ttft_p95) || 1, x = (index) => ((index + 0.5) * 100) / ttft_p50.length;
      const y = (value) => 23 - (value / top) * 21;
      attribute(band, "d", bandPath(ttft_p50, ttft_p95, x, y));
      attribute(line, "d", linePath(ttft_p50, x, y));
    },
  };
};
export const HEATS = 8;
export const heatOf = (value) => (value <= 0 ? 0 : Math.min(HEATS - 1, 1 + Math.floor(value * (HEATS - 1))));
// Reuse over time as one row of a heat map, whose cells are also as high as the rate. What is unknown is a thin line.
export const miniHeat = () => {
  const cells = Array.from({ length: HEATS }, (_, heat) => svg("path", { class: `heat-${heat}` }));
  const gap = svg("path", { class: "heat-unknown" }), track = svg("path", { class: "heat-0" });
  const node = canvas("mini-heat", 100, 20, gap, track, ...cells);
  return {
    node,
    update: ({ reuse_rate }) => {
      const step = 100 / reuse_rate.length, paths = Array.from({ length: HEATS }, () => []), unknown = [], all = [];
      reuse_rate.forEach((value, index) => {
        if (value === null) unknown.push(`M${round(index * step)} 9.5h${round(step)}v1h${round(-step)}z`);
        else {
          all.push(`M${round(index * step)} 0h${round(step)}v20h${round(-step)}z`);
          paths[heatOf(value)].push(`M${round(index * step)} 20v${round(-20 * value)}h${round(step)}v${round(20 * value)}z`);
        }
      });
      cells.forEach((cell, heat) => attribute(cell, "d", paths[heat].join("")));
      attribute(track, "d", all.join(""));
      attribute(gap, "d", unknown.join(""));
    },
  };
};
