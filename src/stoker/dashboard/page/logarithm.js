/* Ticks of a logarithmic axis: round values alone, as many as there is room for. */

const LEADS = [[1], [1, 3], [1, 2, 5], [1, 2, 3, 5, 7], [1, 2, 3, 4, 5, 6, 7, 8, 9]];

function rounded(min, max, leads) {
  const found = [];
  for (let power = Math.floor(Math.log10(min)); power <= Math.ceil(Math.log10(max)); power++) {
    for (const lead of leads) found.push(Number(`${lead}e${power}`));
  }
  return found.filter((value) => value >= min && value <= max);
}

/* Within less than a decade: equal steps of 1, 2 or 5 times a power of ten. */
function equal(min, max, most) {
  const least = (max - min) / most, power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((lead) => lead * power).find((one) => one >= least * (1 - 1e-9)), found = [];
  for (let k = Math.ceil(min / step - 1e-9); k * step <= max * (1 + 1e-12); k++) found.push(Number((k * step).toPrecision(12)));
  return found;
}

/* Values from `min` to `max`, both above zero, that stand on an axis with room for `most`. */
export function logarithmicTicks(min, max, most) {
  if (!(min > 0 && max > min)) return [];
  const decades = rounded(min, max, [1]);
  if (decades.length > most) { // every second, third, … power of ten
    const every = Math.ceil(decades.length / most);
    return decades.filter((value) => Math.round(Math.log10(value)) % every === 0);
  }
  let best = decades;
  for (const leads of LEADS) {
    const found = rounded(min, max, leads);
    if (found.length <= most && found.length > best.length) best = found;
  }
  return best.length >= 3 || max / min > 10 ? best : equal(min, max, most);
}
