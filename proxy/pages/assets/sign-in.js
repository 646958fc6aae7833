// Trades the ticket behind the # for a session, and goes on to where somebody wanted to be.
import { keptRaw } from "./keep.js";
import { fillShell, say } from "./words.js";

const ticket = location.hash.slice(1);
history.replaceState(null, "", location.pathname + location.search); // it is good once, and in no history
const wanted = new URLSearchParams(location.search).get("return_to") ?? "/";
const way = /^\/(scopes\/[\w.-]+\/[\w.-]+|requests\/[\w-]+)?$/.test(wanted) ? wanted : "/";
const tell = (key) => { document.getElementById("said").textContent = say(key); };

const enter = async () => {
  tell("sign_in.entering");
  const answer = await fetch("/sign-in", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ ticket }),
  });
  if (answer.status !== 200) {
    tell({ 403: "sign_in.forbidden", 503: "sign_in.cannot" }[answer.status] ?? "sign_in.over");
    return;
  }
  localStorage.setItem("saltgate-key", (await answer.json()).key);
  location.replace(way);
};

// Who follows a link from elsewhere comes without the cookie, which browsers send to our own pages only: ask as one.
const goOn = async (key) => {
  const answer = await fetch("/api/requests/none", { headers: { "X-Saltgate-Key": key } });
  if (answer.status === 404) location.replace(way);
};

fillShell();
addEventListener("hashchange", () => location.reload());
const key = keptRaw("saltgate-key");
if (ticket) await enter();
else if (key) await goOn(key);
