// Which page this is, and its data.
import { attribute, el } from "./draw.js";
import { notice, obstacle, openFrame, showPulse, showViewer } from "./frame.js";
import { follow } from "./live.js";
import { say } from "./words.js";

// /scopes/WORKSPACE/PROJECT and /requests/ID; everything else is the overview.
const page = async ([kind, ...names]) => {
  if (kind === "scopes" && names.length === 2) return (await import("./scope.js")).scopePage(...names);
  if (kind === "requests" && names.length === 1) return (await import("./request.js")).requestPage(...names);
  return import("./overview.js");
};

// A path that is no UTF-8 names nothing that we know.
const decoded = (segment) => { try { return decodeURIComponent(segment); } catch { return segment; } };
const segments = location.pathname.split("/").filter(Boolean);
const { address, open, missing = "missing", hasWindow = true } = await page(segments.map(decoded));
const main = document.getElementById("main"), content = document.createElement("div");
content.className = "content";
main.append(content);
let live = null;
openFrame(hasWindow ? () => { attribute(content, "data-turning", true); live.again(); } : null);
const show = open(content);

let stood = null;
live = follow(address, (data) => {
  attribute(content, "data-turning", null);
  showViewer(data.viewer);
  show(data);
}, (state) => {
  showPulse(state);
  const what = state.kind === "missing" ? "missing" : `${state.kind} ${state.signIn}`;
  const blocked = state.kind === "missing" ? notice(missing, el("a", { class: "button", href: "/" }, say("overview.title"))) : obstacle(state);
  attribute(content, "hidden", blocked !== null);
  attribute(document.body, "data-loading", state.kind === "loading");
  if (blocked === null) { stood?.remove(); stood = null; return; }
  if (stood?.dataset.what === what) return;
  stood?.remove();
  stood = blocked;
  stood.dataset.what = what;
  main.append(stood);
});
