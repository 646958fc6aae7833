// One request, found by its id.
import { el } from "./draw.js";
import { details } from "./details.js";
import { scopeAddress, showAlarms, showFoot } from "./frame.js";
import { say } from "./words.js";

export const requestPage = (requestId) => ({
  address: () => `/api/requests/${encodeURIComponent(requestId)}`,
  missing: "request_missing",
  hasWindow: false,
  open: (main) => {
    const place = el("section", { class: "card padded" });
    const back = el("p", { class: "crumbs" });
    main.append(back, el("h1", {}, say("request.title"), " ", el("code", {}, requestId)), place);
    showFoot([]);
    let shown = "";
    return ({ alarms, now, ...request }) => {
      showAlarms(alarms, now, requestId);
      if (shown === JSON.stringify(request)) return;
      shown = JSON.stringify(request);
      const scope = request.project === null ? null : el("a", { href: scopeAddress(request.workspace, request.project) }, `${request.workspace} / ${request.project}`);
      back.replaceChildren(el("a", { href: "/" }, say("overview.title")), ...(scope ? [" › ", scope] : []));
      place.replaceChildren(details(request, 2));
    };
  },
});
