"use strict";
/* The page's data: packed numbers become arrays once, when a chart first asks for them. */
const Report = {};

Report.payload = JSON.parse(document.getElementById("payload").textContent);
Report.cache = new Map();

Report.bytes = (packed) => {
  const text = atob(packed);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes.buffer;
};

/* Values as a plain array in which null stands for no value, as uPlot wants it. */
Report.values = (packed) => {
  if (!Report.cache.has(packed)) {
    const raw = new Float32Array(Report.bytes(packed));
    Report.cache.set(packed, Array.from(raw, (v) => (Number.isNaN(v) ? null : v)));
  }
  return Report.cache.get(packed);
};

/* Places of an axis in one unit; null when that unit is not known for it. */
Report.places = (axis, unit) => {
  const packed = Report.payload.axes[axis][unit];
  if (packed === undefined) return null;
  const key = axis + "/" + unit;
  if (!Report.cache.has(key)) {
    const factor = unit === "hours" ? Report.timeUnit().perHour : 1;
    Report.cache.set(key, Array.from(new Float64Array(Report.bytes(packed)), (place) => place * factor));
  }
  return Report.cache.get(key);
};

/* One unit of time for the whole page, by the longest run on it. */
Report.timeUnit = () => {
  if (!Report.chosenTimeUnit) {
    const hours = Object.values(Report.payload.axes).map((axis) => (axis.hours ? new Float64Array(Report.bytes(axis.hours)).at(-1) : 0));
    const longest = Math.max(0, ...hours.filter(Number.isFinite));
    Report.chosenTimeUnit = longest < 0.05 ? { perHour: 3600, name: "s" } : longest < 3 ? { perHour: 60, name: "min" } : { perHour: 1, name: "h" };
  }
  return Report.chosenTimeUnit;
};

/* Where a step lies on an axis in the unit shown, by interpolation between the points there are. */
Report.placeOfStep = (axis, step, unit) => {
  const steps = Report.places(axis, "step"), at = Report.places(axis, unit);
  if (!steps || !at || !steps.length) return null;
  let low = 0, high = steps.length - 1;
  if (step <= steps[0]) return at[0];
  if (step >= steps[high]) return at[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) low = middle; else high = middle;
  }
  const share = (step - steps[low]) / (steps[high] - steps[low] || 1);
  return at[low] + share * (at[high] - at[low]);
};

/* Mean weighted by exp(-distance / reach) to both sides, so that it does not lag; `reach` in points.
   Values that are missing are passed over and stay missing. */
Report.smoothed = (values, reach) => {
  if (reach <= 0) return values;
  const keep = Math.exp(-1 / reach), sums = new Float64Array(values.length), weights = new Float64Array(values.length);
  const pass = (from, to, by, withOwn) => {
    let sum = 0, weight = 0;
    for (let i = from; i !== to; i += by) {
      sum *= keep; weight *= keep;
      const value = values[i], known = value !== null && value !== undefined;
      if (!withOwn) { sums[i] += sum; weights[i] += weight; }
      if (known) { sum += value; weight += 1; }
      if (withOwn) { sums[i] += sum; weights[i] += weight; }
    }
  };
  pass(0, values.length, 1, true);
  pass(values.length - 1, -1, -1, false);
  return values.map((value, i) => (value === null || value === undefined ? null : sums[i] / weights[i]));
};

/* Without zeros at the end of a fraction. */
Report.trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+(?=e|$)/, "") : text);

Report.formats = {
  number: (v) => {
    if (v === 0) return "0";
    const size = Math.abs(v);
    if (size < 1e-3 || size >= 1e6) return Report.trimmed(v.toExponential(3)).replace("e+", "e");
    return v.toLocaleString("en-US", { maximumSignificantDigits: 4 });
  },
  count: (v) => {
    for (const [size, letter] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
      if (Math.abs(v) >= size) return Report.trimmed((v / size).toPrecision(3)) + letter;
    }
    return Report.trimmed(v.toPrecision(3));
  },
  bytes: (v) => {
    for (const [size, letter] of [[2 ** 40, " TiB"], [2 ** 30, " GiB"], [2 ** 20, " MiB"], [2 ** 10, " KiB"]]) {
      if (Math.abs(v) >= size) return Report.trimmed((v / size).toPrecision(3)) + letter;
    }
    return v + " B";
  },
  seconds: (v) => (Math.abs(v) >= 1 || v === 0 ? Report.trimmed(v.toPrecision(3)) + " s" : Report.trimmed((v * 1e3).toPrecision(3)) + " ms"),
  hours: (v) => Report.trimmed(v.toFixed(2)) + " " + Report.timeUnit().name,
  step: (v) => (Math.abs(v) >= 1e5 ? Report.formats.count(v) : v.toLocaleString("en-US", { maximumFractionDigits: 0 })),
};

/* Labels of an axis: one unit for all of them, and just as many decimals as tell neighbours apart. */
Report.tickUnits = {
  count: [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"], [1, ""]],
  bytes: [[2 ** 40, " TiB"], [2 ** 30, " GiB"], [2 ** 20, " MiB"], [2 ** 10, " KiB"], [1, " B"]],
  seconds: [[1, " s"], [1e-3, " ms"], [1e-6, " µs"]],
  step: [[1e6, "M"], [1, ""]],
  number: [[1, ""]],
};

Report.tickLabels = (kind, values) => {
  const known = values.filter((v) => v !== null && v !== undefined);
  const largest = Math.max(0, ...known.map(Math.abs));
  const units = kind === "hours" ? [[1, " " + Report.timeUnit().name]] : Report.tickUnits[kind];
  const [size, name] = units.find(([least]) => largest >= least) || units[units.length - 1];
  const spelled = (spell) => {
    // A label stands for its value when it is off by less than a hundredth of the way to the next.
    const gap = Math.min(...known.slice(1).map((v, i) => Math.abs(v - known[i]))) || largest;
    let digits = 0;
    while (digits < 9 && known.some((v) => Math.abs(Number(spell(v, digits)) * size - v) > gap / 100)) digits++;
    return (v) => spell(v, digits);
  };
  const plain = kind !== "number" || largest === 0 || (largest >= 1e-3 && largest < 1e6);
  const text = spelled(plain ? (v, digits) => (v / size).toFixed(digits) : (v, digits) => v.toExponential(digits));
  const grouped = (v) => (plain ? text(v).replace(/\B(?=(\d{3})+(?!\d))(?<!\.\d*)/g, ",") : text(v).replace("e+", "e"));
  return values.map((v) => (v === null || v === undefined ? "" : v === 0 && !name.startsWith(" ") ? "0" : grouped(v) + name));
};

/* Ticks of a logarithmic axis: 1, 2 and 5 of each decade, more of them over less than a decade, fewer over many. */
Report.logTicks = (least, most) => {
  const first = Math.floor(Math.log10(least)), last = Math.ceil(Math.log10(most)), every = Math.ceil((last - first) / 7);
  const within = (digits, by) => {
    const found = [];
    for (let power = first; power <= last; power += by) for (const digit of digits) found.push(Number(`${digit}e${power}`));
    return found.filter((v) => v >= least && v <= most);
  };
  for (const digits of [[1], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]]) {
    const found = within(digits, every);
    if (found.length >= (digits.length === 1 ? 4 : 3)) return found;
  }
  const rough = (most - least) / 4, power = Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((digit) => Number(`${digit}e${power}`)).find((size) => size >= rough);
  return Array.from({ length: 6 }, (_, i) => Number(((Math.ceil(least / step) + i) * step).toPrecision(12))).filter((v) => v <= most);
};

Report.colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
