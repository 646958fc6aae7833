// Why a scope wants a look, in words.
import { duration, share } from "./numbers.js";
import { say } from "./words.js";

export const reasonText = ({ kind, share: part, from, to }) => {
  if (kind === "reuse_fell") return say("reason.reuse_fell", { from: share(from), to: share(to) });
  if (kind === "slower") return say("reason.slower", { from: duration(from), to: duration(to) });
  return say(`reason.${kind}`, { share: share(part) });
};
