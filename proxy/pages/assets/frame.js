// What surrounds every page: search, window, language, theme, how fresh the data is, and what is wrong with it.
import { attribute, el, text } from "./draw.js";
import { rung } from "./judge.js";
import { keep, kept } from "./keep.js";
import { age, count, dateTime, timeZone, UNKNOWN } from "./numbers.js";
import { LANGUAGES, fillShell, language, say, sayCount, sayNamed } from "./words.js";

export const WINDOWS = ["15m", "1h", "6h", "24h"];
const byId = (id) => document.getElementById(id);
const address = new URL(location.href);
let chosen = [address.searchParams.get("window"), kept("window"), "1h"].find((name) => WINDOWS.includes(name));

export const chosenWindow = () => chosen;
// Addresses of pages. Names go in encoded, one path segment each.
export const scopeAddress = (workspace, project) =>
  `/scopes/${encodeURIComponent(workspace)}/${encodeURIComponent(project)}?window=${chosen}`;
export const requestAddress = (requestId) => `/requests/${encodeURIComponent(requestId)}`;

// Sets it all up. `changed` is called when another window is chosen; null: the page has no window.
export const openFrame = (changed) => {
  fillShell();
  byId("window").hidden = changed === null;
  if (changed) drawWindows(changed);
  drawLanguages();
  drawTheme();
  const keys = changed ? ["keys.search", "keys.rows", "keys.open"] : ["keys.search"];
  byId("foot-keys").append(...keys.map((key) => el("span", {}, el("kbd", {}, say(`${key}.key`)), say(key))));
  byId("search").addEventListener("submit", search);
  byId("request-id").addEventListener("input", ({ target }) => target.setCustomValidity(""));
  addEventListener("keydown", focusSearch);
};

const drawWindows = (changed) => {
  for (const name of WINDOWS) {
    const radio = el("input", { type: "radio", name: "window", id: `window-${name}`, value: name, class: "unseen" });
    radio.checked = name === chosen;
    radio.addEventListener("change", () => {
      chosen = name;
      keep("window", name);
      address.searchParams.set("window", name);
      history.replaceState(null, "", address);
      changed();
    });
    byId("window").append(radio, el("label", { for: radio.id }, say(`window.${name}`)));
  }
};

const drawLanguages = () => {
  const select = byId("language");
  for (const name of LANGUAGES) select.append(el("option", { value: name, lang: name }, say(`language.${name}`)));
  select.value = language;
  select.addEventListener("change", () => { keep("language", select.value); location.reload(); });
};

const THEMES = ["auto", "light", "dark"];
const drawTheme = () => {
  const button = byId("theme");
  let theme = document.documentElement.dataset.theme ?? "auto";
  const name = () => {
    const label = say(`theme.${theme}`);
    attribute(button, "aria-label", label);
    attribute(button, "title", label);
    attribute(button, "data-theme", theme);
  };
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    keep("theme", theme);
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    name();
  });
  name();
};

const search = (event) => {
  event.preventDefault();
  const field = byId("request-id"), wanted = field.value.trim();
  if (/^[\w-]{1,64}$/.test(wanted)) location.assign(requestAddress(wanted));
  else if (wanted) { field.setCustomValidity(say("search.invalid")); field.reportValidity(); }
};

const focusSearch = (event) => {
  const field = event.target.closest?.("input:not([type=radio]), select, textarea");
  if (event.key === "Escape" && event.target === byId("request-id")) { event.target.value = ""; event.target.blur(); }
  if (event.key !== "/" || field || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  byId("request-id").focus();
};

// How fresh the data is. What stands in the way of any is said in the page's place, by `obstacle`.
export const showPulse = ({ kind, seconds }) => {
  const pulse = byId("pulse");
  attribute(pulse, "data-kind", kind);
  const said = { live: "pulse.live", stale: "pulse.stale", loading: "pulse.loading" }[kind] ?? "pulse.none";
  text(byId("pulse-text"), say(said, { age: age(seconds) }));
  const stale = kind === "stale" ? say("stale.message", { age: age(seconds) }) : "";
  if (byId("trouble").textContent !== stale) byId("trouble").replaceChildren(...(stale ? [el("p", { class: "banner watch" }, stale)] : []));
  document.body.classList.toggle("is-stale", kind === "stale");
};

// Why there is nothing to see: what happened, and the way on. Null where there is no obstacle.
export const obstacle = ({ kind, signIn, has }) => {
  if (has && kind !== "signed_out" && kind !== "forbidden") return null;
  if (kind === "signed_out" || kind === "forbidden") return notice(kind, signInLink(signIn));
  if (kind === "error") return notice(kind);
  return null;
};
const isOurs = (path) => typeof path === "string" && /^\/(?![/\\])/.test(path);
const signInLink = (path) => {
  if (!isOurs(path)) return null;
  const back = encodeURIComponent(location.pathname + location.search);
  return el("a", { class: "button", href: `${path}?return_to=${back}` }, say("signed_out.link"));
};
export const notice = (name, ...more) =>
  el("section", { class: "notice", "data-notice": name },
    el("h1", {}, say(`${name}.title`)), el("p", {}, say(`${name}.message`)), ...more);

// Alarms of the border: over everything, in the tab's title and in its icon, for as long as the gate tells of them.
export const showAlarms = (alarms, now, title) => {
  const ringing = rung(alarms, now);
  const lines = ringing.map((alarm) => {
    const last = alarm.last === null ? UNKNOWN : dateTime(alarm.last);
    return sayCount("alarm.line", alarm.count, { count: count(alarm.count), check: sayNamed("check", alarm.check), last });
  });
  const place = byId("alarms"), whole = lines.join("\n");
  if (place.dataset.shown !== whole) {
    place.dataset.shown = whole;
    place.replaceChildren(...(lines.length ? [el("div", { class: "banner alarm" }, el("strong", {}, say("alarm.title")), ...lines.map((line) => el("p", {}, line)), el("p", {}, say("alarm.step")))] : []));
  }
  const named = title ? `${title} · saltgate` : "saltgate";
  const wanted = ringing.length ? say("alarm.tab", { title: named }) : named;
  if (document.title !== wanted) document.title = wanted;
  attribute(byId("icon"), "href", ringing.length ? "/assets/icon-alarm.svg" : "/assets/icon.svg");
};

// Who looks, and the way out.
export const showViewer = (viewer) => {
  const place = byId("viewer"), told = JSON.stringify(viewer ?? null);
  if (place.dataset.shown === told) return;
  place.dataset.shown = told;
  place.replaceChildren(...(viewer ? [el("span", { class: "viewer-name" }, viewer.name), ...signOut(viewer)] : []));
};
const signOut = ({ sign_out: path, form_token: token }) =>
  !isOurs(path) ? [] : [el("form", { method: "post", action: path }, el("input", { type: "hidden", name: "form_token", value: token ?? "" }), el("button", { type: "submit", class: "quiet" }, say("sign_out")))];

export const showFoot = (facts) => {
  text(byId("foot-facts"), [...facts, say("foot.zone", { zone: timeZone })].join(" · "));
};

// One row of a table is in the tab order; the arrow keys, Home and End go to the others. `reached` is called with each.
export const rowKeys = (body, selector) => {
  const stops = () => [...body.querySelectorAll(selector)];
  const settle = () => {
    const all = stops();
    const one = all.find((stop) => stop.tabIndex === 0) ?? all[0];
    for (const stop of all) stop.tabIndex = stop === one ? 0 : -1;
  };
  body.addEventListener("keydown", (event) => {
    if (!event.target.matches(selector) || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = stops(), at = all.indexOf(event.target);
    const to = { ArrowDown: at + 1, j: at + 1, ArrowUp: at - 1, k: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    all[Math.min(Math.max(to, 0), all.length - 1)].focus();
  });
  body.addEventListener("focusin", (event) => {
    if (!event.target.matches(selector)) return;
    for (const stop of stops()) stop.tabIndex = stop === event.target ? 0 : -1;
  });
  return settle;
};
