// Numbers, times and shares as people of the page's language write them. What is unknown is a dash, never a zero.
import { language, say } from "./words.js";

export const UNKNOWN = "–";
const known = (value) => typeof value === "number" && Number.isFinite(value);
const shown = (format) => (value) => (known(value) ? format(value) : UNKNOWN);
const number = (options) => {
  const format = new Intl.NumberFormat(language, options);
  return (value) => format.format(value);
};
// Intl's own units are "sec" and "hr": nobody writes a latency so.
const unit = (name, maximumFractionDigits = 0) => {
  const format = number({ maximumFractionDigits });
  return (value) => say(`unit.${name}`, { number: format(value) });
};

const whole = number({ maximumFractionDigits: 0 });
const short = number({ notation: "compact", maximumSignificantDigits: 3 });
export const count = shown(whole);
// 12,345 as it is, above that "1.23M" or "123万".
export const compact = shown((value) => (Math.abs(value) < 1e5 ? whole(value) : short(value)));

const percent = number({ style: "percent", maximumFractionDigits: 0 });
const finePercent = number({ style: "percent", maximumFractionDigits: 1 });
// A share that is there is not shown as none, and one that lacks something not as all.
export const share = shown((value) =>
  (value > 0 && value < 0.1) || (value > 0.99 && value < 1) ? finePercent(Math.min(Math.max(value, 0.001), value < 1 ? 0.999 : 1)) : percent(value));
const points = number({ maximumFractionDigits: 0, signDisplay: "exceptZero" });
export const percentagePoints = shown((value) => points(value * 100));

const tenths = number({ maximumFractionDigits: 1 });
export const rate = shown((value) => (value < 100 ? tenths(value) : compact(value)));

const milliseconds = [unit("ms", 2), unit("ms", 1), unit("ms")], seconds = [unit("s", 2), unit("s", 1), unit("s")];
const minutes = unit("min"), hours = unit("h"), days = unit("d");
const two = (value, size, bigger, smaller, inner) => {
  const big = Math.floor(value / size), rest = Math.round((value - big * size) / inner);
  if (rest * inner >= size) return bigger(big + 1);
  return rest ? `${bigger(big)} ${smaller(rest)}` : bigger(big);
};
export const duration = shown((value) => {
  const ms = value * 1e3;
  if (ms < 999.5) return milliseconds[ms < 1 ? 0 : ms < 10 ? 1 : 2](ms);
  if (value < 59.95) return seconds[value < 10 ? 0 : 1](value);
  if (value < 3599.5) return two(value, 60, minutes, seconds[2], 1);
  if (value < 86400) return two(value, 3600, hours, minutes, 60);
  return two(value, 86400, days, hours, 3600);
});
// A span of time in one unit: "12 s", "3 min".
export const age = shown((value) => (value < 59.5 ? seconds[2](value) : value < 3570 ? minutes(Math.round(value / 60)) : hours(Math.round(value / 3600))));

const date = (options) => {
  const format = new Intl.DateTimeFormat(language, options);
  return (unix) => format.format(new Date(unix * 1e3));
};
export const clock = shown(date({ hour: "2-digit", minute: "2-digit", hour12: false }));
export const fineClock = shown(date({ hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false }));
export const dateTime = shown(date({ dateStyle: "medium", timeStyle: "medium", hour12: false }));
export const moment = shown(date({ dateStyle: "medium", timeStyle: "short", hour12: false }));
export const day = shown(date({ dateStyle: "medium" }));
export const timeZone = new Intl.DateTimeFormat(language).resolvedOptions().timeZone;
