/* Smoothing is done here and nowhere else: what was recorded stays as it is, and is drawn behind it. */

/* How many points a smoothed curve looks back on: none at 0, a tenth of the picture at 1. */
export const reach = (smoothing, points) => (smoothing <= 0 ? 0 : 0.5 + smoothing ** 3 * points * 0.1);

/* Exponential mean forwards and backwards, so that a bend stays where it is; gaps are passed over. */
export function smoothed(values, width) {
  if (width <= 0) return values;
  const keep = Math.exp(-1 / width), length = values.length;
  const sums = new Float64Array(length), weights = new Float64Array(length);
  for (const forwards of [true, false]) {
    let sum = 0, weight = 0;
    for (let k = 0; k < length; k++) {
      const i = forwards ? k : length - 1 - k, value = values[i];
      sum *= keep; weight *= keep;
      if (!forwards) { sums[i] += sum; weights[i] += weight; }
      if (value !== null && !Number.isNaN(value)) { sum += value; weight += 1; }
      if (forwards) { sums[i] += sum; weights[i] += weight; }
    }
  }
  return Array.from(sums, (sum, i) => (weights[i] > 1e-12 ? sum / weights[i] : null));
}
