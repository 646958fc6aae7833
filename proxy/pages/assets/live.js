// Data that keeps itself fresh: asked for again and again while somebody looks, and never two at a time.
import { keptRaw } from "./keep.js";

const EVERY = 3000, EVERY_WHEN_LARGE = 5000, LARGE = 300_000, PATIENCE = 15_000;
export const STALE_SECONDS = 10;

// The sign-in gives this origin a key beside the cookie, which cookies alone cannot: they know no ports.
const headers = (tag) => ({ "X-Saltgate-Key": keptRaw("saltgate-key") ?? "", ...(tag ? { "If-None-Match": tag } : {}) });

// Tells `shown(data)` of each new answer and `told(state)` of what the connection is like, at least once a second.
// A state is { kind: "loading" | "live" | "stale" | "error" | "signed_out" | "forbidden" | "missing", seconds, signIn }.
// `address()` may change: then call `again()`.
export const follow = (address, shown, told) => {
  let tag = null, asked = null, timer = 0, fetching = null, last = null, has = false, every = EVERY, kind = "loading", signIn = null;

  const seconds = () => (last === null ? null : (performance.now() - last) / 1e3);
  const tell = () => {
    const old = kind === "live" && seconds() > STALE_SECONDS;
    told({ kind: old ? "stale" : kind, seconds: seconds(), signIn, has });
  };
  const soon = (milliseconds) => { clearTimeout(timer); timer = setTimeout(ask, milliseconds); };

  const ask = async () => {
    if (document.hidden) return;
    fetching?.abort();
    const mine = (fetching = new AbortController());
    const patience = setTimeout(() => mine.abort(), PATIENCE);
    const wanted = address();
    if (wanted !== asked) [asked, tag] = [wanted, null];
    try {
      const answer = await fetch(wanted, { cache: "no-store", signal: mine.signal, headers: headers(tag) });
      if (answer.status === 200) {
        const body = await answer.text();
        const data = JSON.parse(body);
        if (mine !== fetching) return;
        every = body.length > LARGE ? EVERY_WHEN_LARGE : EVERY;
        [tag, last, kind, has] = [answer.headers.get("ETag"), performance.now(), "live", true];
        shown(data);
      } else if (answer.status === 304) {
        [last, kind] = [performance.now(), "live"];
      } else {
        await refused(answer);
      }
    } catch (error) {
      if (mine !== fetching) return;
      if (!(error instanceof TypeError || error instanceof SyntaxError || error.name === "AbortError")) throw error;
      kind = has ? "stale" : "error"; // no connection, an answer that broke off, or none in time
    } finally {
      clearTimeout(patience);
    }
    if (mine !== fetching) return;
    tell();
    soon(every);
  };

  const refused = async (answer) => {
    kind = { 401: "signed_out", 403: "forbidden", 404: "missing" }[answer.status] ?? (has ? "stale" : "error");
    if (kind === "signed_out" || kind === "forbidden") signIn = (await answer.json().catch(() => ({}))).sign_in ?? null;
  };

  document.addEventListener("visibilitychange", () => { if (!document.hidden) { tell(); soon(0); } });
  addEventListener("online", () => soon(0));
  setInterval(tell, 1000);
  tell();
  void ask();
  return { again: () => { kind = has ? kind : "loading"; void ask(); } };
};
