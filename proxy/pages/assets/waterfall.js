// A request as a waterfall: what took how long, from its head to its end.
import { attribute, el, svg } from "./draw.js";
import { sayNamed } from "./words.js";

export const STAGES = ["body", "auth", "directory", "fetch", "scan", "queue", "stamp", "connect", "prefill", "answer", "relay", "stream"];
export const stageClass = (name) => `stage-${STAGES.includes(name) ? name : "other"}`;

const firstToken = ({ spans }) => {
  const prefill = spans.find((span) => span.name === "prefill");
  return prefill ? prefill.start + prefill.duration : null;
};
// How much time a drawing of these requests covers: to the first token of nine in ten, or to the end of all.
export const extentOf = (requests, whole) => {
  if (whole) return Math.max(1e-6, ...requests.map((request) => request.duration));
  const firsts = requests.map((request) => firstToken(request) ?? request.duration).sort((a, b) => a - b);
  return Math.max(1e-6, (firsts[Math.floor(firsts.length * 0.9)] ?? 0) * 1.2);
};

// One line of bars. It is a picture of figures that stand beside it, or in the request's details.
export const bars = () => svg("svg", { class: "bars", "aria-hidden": "true" });
export const drawBars = (node, request, extent) => {
  const at = (seconds) => `${Math.min(100, (seconds / extent) * 100).toFixed(3)}%`;
  const parts = request.spans.filter((span) => span.start < extent).map((span) =>
    svg("rect", { class: stageClass(span.name), x: at(span.start), width: at(Math.min(span.duration, extent - span.start)), ...(span.name === "stream" ? { y: "25%", height: "50%" } : { height: "100%" }) }));
  if (request.duration > extent * 1.001) parts.push(svg("svg", { x: "100%", overflow: "visible" }, svg("path", { class: "cut", d: "m-9 4 4 4-4 4m4-8 4 4-4 4" })));
  else if (request.outcome !== "ok") parts.push(svg("svg", { x: at(request.duration), overflow: "visible" }, svg("path", { class: "broke", d: "m3 5 6 6m0-6-6 6" })));
  node.replaceChildren(...parts);
};

// The stages that occur, with their colours.
export const legend = () => el("ul", { class: "legend" });
export const drawLegend = (node, requests) => {
  const there = new Set(requests.flatMap((request) => request.spans.map((span) => span.name)));
  const names = STAGES.filter((name) => there.has(name)), shown = names.join(" ");
  if (node.dataset.shown === shown) return;
  attribute(node, "data-shown", shown);
  node.replaceChildren(...names.map((name) => el("li", {}, swatch(name), sayNamed("stage", name))));
};
export const swatch = (name) => svg("svg", { class: "swatch", "aria-hidden": "true" }, svg("rect", { class: stageClass(name), width: "100%", height: "100%" }));
