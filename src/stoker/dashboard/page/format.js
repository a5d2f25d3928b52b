/* How figures are spelled. Each kind of figure has a unit of its own; an axis spells all of its ticks alike. */
import { NOTHING, locale, words } from "./words.js";

const finite = (value) => typeof value === "number" && Number.isFinite(value);
const trimmed = (value, digits) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(Math.max(0, digits - 1)).replace("e+", "e");
  return String(Number(value.toPrecision(digits)));
};
const SCALES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const scaled = (value, digits) => {
  for (const [size, letter] of SCALES) if (Math.abs(value) >= size) return Number((value / size).toPrecision(digits)) + letter;
  return String(Number(value.toPrecision(digits)));
};
const BINARY = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
const binary = (value, digits) => {
  for (const [size, unit] of BINARY) if (Math.abs(value) >= size) return Number((value / size).toPrecision(digits)) + " " + unit;
  return Number(value.toPrecision(digits)) + " B";
};
const duration = (value, digits) => {
  const size = Math.abs(value), told = (scale, unit) => `${Number((value * scale).toPrecision(digits))} ${words(unit)}`;
  if (size === 0) return told(1, "seconds");
  if (size < 1e-3) return told(1e6, "microseconds");
  if (size < 1) return told(1e3, "milliseconds");
  if (size < 120) return told(1, "seconds");
  if (size < 7200) return told(1 / 60, "minutes");
  if (size < 172800) return told(1 / 3600, "hoursLong");
  return told(1 / 86400, "days");
};

const KINDS = {
  number: trimmed,
  count: scaled,
  rate: (value, digits) => scaled(value, digits),
  bytes: binary,
  seconds: duration,
  hours: (value, digits) => duration(value * 3600, digits),
  flops: (value, digits) => value.toExponential(Math.max(0, digits - 1)).replace("e+", "e"),
  step: (value) => Math.round(value).toLocaleString("en-US"),
  tokens: scaled,
  percent: (value, digits) => Number((100 * value).toPrecision(digits)) + "%",
  celsius: (value, digits) => Number(value.toPrecision(digits)) + " °C",
  watts: (value, digits) => scaled(value, digits) + "W",
  hertz: (value, digits) => scaled(value, digits) + "Hz",
};

export function spelled(value, kind = "number", digits = 4) {
  if (typeof value === "string") return value;
  if (value === null || value === undefined) return NOTHING;
  if (!finite(value)) return Number.isNaN(value) ? NOTHING : value > 0 ? "Inf" : "−Inf";
  return (KINDS[kind] || trimmed)(value, digits);
}

/* Ticks of an axis: as many digits as tell them apart. */
export function ticks(values, kind) {
  const known = values.filter(finite);
  for (let digits = 1; digits < 9; digits++) {
    const texts = known.map((value) => spelled(value, kind, digits));
    const back = known.map((value) => Number(value.toPrecision(digits)));
    if (new Set(texts).size === known.length && back.every((value, i) => Math.abs(value - known[i]) <= 1e-9 * Math.abs(known[i]))) return values.map((value) => (finite(value) ? spelled(value, kind, digits) : ""));
  }
  return values.map((value) => (finite(value) ? spelled(value, kind, 9) : ""));
}

export const moment = (unix) => (finite(unix) ? new Date(unix * 1000).toLocaleString(locale(), { dateStyle: "medium", timeStyle: "medium" }) : NOTHING);

export function ago(unix) {
  if (!finite(unix)) return NOTHING;
  const seconds = Math.max(0, Date.now() / 1000 - unix);
  return words("ago", seconds < 2 ? words("now") : duration(Math.floor(seconds), 2));
}
