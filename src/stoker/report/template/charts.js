"use strict";
/* Charts: curves, stacked areas, heat maps. `Report.view` says what all of them show. */
Report.view = { unit: "step", smoothing: 0.45, log: false, clip: true, zoom: null };
Report.charts = [];

Report.unitFormat = () => ({ step: Report.formats.step, tokens: Report.formats.count, hours: Report.formats.hours })[Report.view.unit];

/* How many of `points` the smoothed curve looks to each side: none at 0, a tenth of the curve at 1. */
Report.reach = (points) => (Report.view.smoothing <= 0 ? 0 : 0.5 + Math.pow(Report.view.smoothing, 3) * points * 0.1);

Report.faded = (colour, share) => {
  const hex = parseInt(colour.slice(1), 16);
  return `rgba(${hex >> 16},${(hex >> 8) & 255},${hex & 255},${share})`;
};

/* Each line of a chart in the unit shown: places, raw values, smoothed values or null. */
Report.curves = (spec) => spec.lines.map((line) => {
  const own = Report.places(line.axis, Report.view.unit);
  const x = own || Report.places(line.axis, "step");
  const raw = Report.values(line.raw);
  let smooth = null;
  if (spec.smooth && Report.view.smoothing > 0) {
    if (line.mean) {
      const means = Report.values(line.mean);
      const even = Report.smoothed(means, Report.reach(means.length));
      smooth = raw.map((_, i) => even[Math.min(i >> 1, even.length - 1)]);
    } else {
      smooth = Report.smoothed(raw, Report.reach(raw.length));
    }
  }
  return { line, x, raw, smooth };
});

/* One table for uPlot: x, then for each line its raw and (if any) smoothed values. */
Report.table = (curves) => {
  const oneAxis = curves.every((curve) => curve.x === curves[0].x);
  const columns = (curve) => [curve.raw, curve.smooth || curve.raw];
  if (oneAxis) return [curves[0].x, ...curves.flatMap(columns)];
  return uPlot.join(curves.map((curve) => [curve.x, ...columns(curve)]));
};

/* Lowest and highest value to show: all, or the bulk of them, so that one spike does not flatten the rest. */
Report.range = (u, spec) => {
  const [from, to] = u.series[0].idxs || [0, u.data[0].length - 1];
  let values = [];
  u.series.forEach((series, i) => {
    if (i === 0 || !series.show) return;
    const y = u.data[i];
    for (let k = from; k <= to; k++) {
      if (y[k] !== null && y[k] !== undefined && (!Report.view.log || y[k] > 0)) values.push(y[k]);
    }
  });
  if (!values.length) return Report.view.log ? [0.1, 1] : [0, 1];
  values.sort((a, b) => a - b);
  let [bottom, top] = [values[0], values[values.length - 1]];
  if (Report.view.clip && spec.smooth && values.length > 20) {
    const at = (share) => values[Math.floor(share * (values.length - 1))];
    const spread = at(0.98) - at(0.02) || Math.abs(at(0.5)) * 0.1 || 1;
    const [lowest, highest] = [at(0.02) - 3 * spread, at(0.98) + 3 * spread];
    bottom = values.find((v) => v >= lowest);
    top = values.findLast((v) => v <= highest);
  }
  if (spec.floor !== undefined && !Report.view.log) bottom = Math.min(spec.floor, bottom);
  if (Report.view.log) return [bottom / 1.15, top * 1.15];
  const room = (top - bottom) * 0.06 || Math.abs(top) * 0.1 || 1;
  return [spec.floor !== undefined && bottom >= spec.floor ? spec.floor : bottom - room, top + room];
};

/* From 0 to the highest sum; steps that evaluate or save are cut off when they dwarf the others. */
Report.stackRange = (u) => {
  const sums = u.data[u.data.length - 1], [from, to] = u.series[0].idxs || [0, sums.length - 1];
  const sorted = sums.slice(from, to + 1).sort((a, b) => a - b);
  const highest = sorted[sorted.length - 1] || 1, usual = sorted[Math.floor(0.9 * (sorted.length - 1))] || highest;
  return [0, Report.view.clip ? Math.min(highest * 1.04, usual * 1.5) : highest * 1.04];
};

/* Vertical lines at events, ticks where a value was not finite, triangles where one is beyond the chart. */
Report.drawMarks = (u, spec) => {
  const { ctx } = u, { left, top, width, height } = u.bbox, dot = devicePixelRatio;
  const seen = new Set();
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  ctx.font = `${11 * dot}px ${getComputedStyle(document.body).fontFamily}`;
  let labelled = -Infinity;
  for (const line of spec.lines) {
    const marks = Report.payload.marks[line.axis];
    if (!marks || seen.has(line.axis)) continue;
    seen.add(line.axis);
    for (const event of marks.events) {
      const x = u.valToPos(Report.placeOfStep(line.axis, event.step, Report.view.unit), "x", true);
      ctx.strokeStyle = Report.faded(Report.colour("c8"), 0.7);
      ctx.setLineDash([4 * dot, 4 * dot]);
      ctx.lineWidth = dot;
      ctx.beginPath(); ctx.moveTo(x, top); ctx.lineTo(x, top + height); ctx.stroke();
      if (spec.main && x - labelled > 70 * dot) {
        ctx.fillStyle = Report.colour("soft");
        const room = left + width - x - 4 * dot, wide = ctx.measureText(event.label).width;
        ctx.fillText(event.label, room > wide ? x + 4 * dot : x - wide - 4 * dot, top + 11 * dot);
        labelled = x;
      }
    }
    ctx.setLineDash([]);
    ctx.strokeStyle = Report.colour("bad");
    ctx.lineWidth = 2 * dot;
    for (const step of marks.non_finite) {
      const x = u.valToPos(Report.placeOfStep(line.axis, step, Report.view.unit), "x", true);
      ctx.beginPath(); ctx.moveTo(x, top + height); ctx.lineTo(x, top + height - 12 * dot); ctx.stroke();
      if (spec.main && marks.non_finite.length < 4) {
        ctx.fillStyle = Report.colour("bad");
        ctx.fillText("NaN", Math.min(x + 4 * dot, left + width - 28 * dot), top + height - 4 * dot);
      }
    }
  }
  if (spec.limit) {
    const y = u.valToPos(spec.limit, "y", true);
    ctx.strokeStyle = Report.colour("faint");
    ctx.lineWidth = dot;
    ctx.setLineDash([3 * dot, 3 * dot]);
    ctx.beginPath(); ctx.moveTo(left, y); ctx.lineTo(left + width, y); ctx.stroke();
    ctx.setLineDash([]);
  }
  const ceiling = u.scales.y.max, size = 4 * dot;
  u.series.forEach((series, i) => {
    if (!series.mark || !series.show) return;
    ctx.fillStyle = series.mark;
    u.data[i].forEach((value, k) => {
      if (value === null || value === undefined || value <= ceiling) return;
      const x = u.valToPos(u.data[0][k], "x", true);
      ctx.beginPath(); ctx.moveTo(x, top); ctx.lineTo(x - size, top + 1.6 * size); ctx.lineTo(x + size, top + 1.6 * size); ctx.fill();
    });
  });
  ctx.restore();
};

/* Distances between ticks: whole steps and tokens, bytes by powers of two; what uPlot chooses for others. */
Report.tickDistances = {
  step: Array.from({ length: 48 }, (_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3)),
  bytes: Array.from({ length: 60 }, (_, power) => 2 ** power),
};

Report.axesStyle = (kind, log) => {
  const unit = Report.view.unit, unitKind = { step: "step", tokens: "count", hours: "hours" }[unit];
  const style = { stroke: Report.colour("soft"), font: `11px ${getComputedStyle(document.body).fontFamily}`, ticks: { show: false }, grid: { stroke: Report.colour("grid"), width: 1 } };
  const own = { splits: (u, axis, least, most) => Report.logTicks(least, most), filter: (u, splits) => splits, values: (u, splits) => splits.map(Report.formats[kind]) };
  return [
    { ...style, size: 26, gap: 6, space: 70, incrs: unit === "hours" ? undefined : Report.tickDistances.step, values: (u, splits) => Report.tickLabels(unitKind, splits), grid: { show: false } },
    { ...style, size: 58, gap: 8, space: 30, incrs: Report.tickDistances[kind], ...(log ? own : { values: (u, splits) => Report.tickLabels(kind, splits) }) },
  ];
};

Report.options = (chart, series, extra) => ({
  width: Math.max(80, chart.element.clientWidth),
  height: chart.element.clientHeight,
  legend: { show: false },
  cursor: {
    sync: { key: "places", scales: ["x", null], setSeries: false },
    drag: { x: true, y: false, setScale: true },
    y: false,
    points: { size: 6 },
    focus: { prox: -1 },
  },
  scales: {
    x: { time: false },
    y: { auto: true, distr: Report.view.log && chart.spec.kind === "lines" ? 3 : 1, range: extra.range },
  },
  axes: Report.axesStyle(chart.spec.format || "number", Report.view.log && chart.spec.kind === "lines"),
  series: [{}, ...series],
  bands: extra.bands,
  hooks: {
    draw: [(u) => Report.drawMarks(u, chart.spec)],
    setCursor: [(u) => Report.showValues(chart, u)],
    setScale: [(u, key) => { if (key === "x" && u === chart.u) Report.zoomed(chart); }],
  },
});

Report.lineSeries = (chart) => chart.curves.flatMap((curve) => {
  const colour = Report.colour("c" + (curve.line.colour % 10)), shown = !chart.hidden.has(curve.line.label);
  const dots = chart.spec.points ? { show: true, size: 5, fill: colour } : { show: curve.raw.length === 1, size: 7, fill: colour };
  const smooth = curve.smooth !== null;
  return [
    { show: shown, stroke: smooth ? Report.faded(colour, 0.38) : colour, mark: colour, width: smooth ? 1 : 1.6, points: dots },
    { show: shown && smooth, stroke: colour, width: 2, points: { show: false } },
  ];
});

/* Layer upon layer; a layer that is switched off leaves no hole. */
Report.stacked = (chart) => {
  const x = chart.curves[0].x, sums = new Array(x.length).fill(0), columns = [];
  for (const curve of chart.curves) {
    if (!chart.hidden.has(curve.line.label)) curve.raw.forEach((value, i) => { sums[i] += value || 0; });
    columns.push(sums.slice());
  }
  return [x, ...columns];
};

Report.stackSeries = (chart) => chart.curves.map((curve) => {
  const colour = Report.colour("c" + (curve.line.colour % 10));
  const top = curve === chart.curves[chart.curves.length - 1];
  return { show: !chart.hidden.has(curve.line.label), mark: top ? Report.colour("c8") : null, stroke: colour, fill: Report.faded(colour, 0.55), width: 1, points: { show: curve.raw.length === 1 } };
});

Report.stackBands = (chart) => {
  const shown = chart.curves.map((curve, i) => i + 1).filter((i) => !chart.hidden.has(chart.curves[i - 1].line.label));
  return shown.slice(1).map((upper, k) => ({ series: [upper, shown[k]], fill: Report.faded(Report.colour("c" + (chart.curves[upper - 1].line.colour % 10)), 0.55) }));
};

Report.draw = (chart) => {
  if (chart.u) chart.u.destroy();
  chart.element.replaceChildren();
  if (chart.spec.kind === "heat") return Report.drawHeat(chart);
  chart.curves = Report.curves(chart.spec);
  const stack = chart.spec.kind === "stack";
  const data = stack ? Report.stacked(chart) : Report.table(chart.curves);
  const series = stack ? Report.stackSeries(chart) : Report.lineSeries(chart);
  const range = stack ? (u) => Report.stackRange(u) : (u) => Report.range(u, chart.spec);
  chart.quiet = true;
  chart.u = new uPlot(Report.options(chart, series, { range, bands: stack ? Report.stackBands(chart) : undefined }), data, chart.element);
  if (Report.view.zoom && data[0].length > 1) chart.u.setScale("x", Report.view.zoom);
  chart.quiet = false;
  Report.showValues(chart, chart.u);
};

/* A zoom in one chart is a zoom in all; a double click shows everything again. */
Report.zoomed = (chart) => {
  if (chart.quiet || !chart.u) return;
  const { min, max } = chart.u.scales.x, x = chart.u.data[0];
  const whole = min <= x[0] && max >= x[x.length - 1];
  if (whole && Report.view.zoom === null) return;
  Report.setZoom(whole ? null : { min, max }, chart);
};

Report.setZoom = (zoom, origin) => {
  Report.view.zoom = zoom;
  document.getElementById("reset").hidden = zoom === null;
  for (const chart of Report.charts) {
    if (chart === origin || !chart.drawn) continue;
    if (!chart.u) { Report.draw(chart); continue; }
    const x = chart.u.data[0];
    if (x[0] === x[x.length - 1]) continue; // One point has no stretch to zoom into, and uPlot finds no end of ticks.
    chart.quiet = true;
    chart.u.setScale("x", zoom || { min: x[0], max: x[x.length - 1] });
    queueMicrotask(() => { chart.quiet = false; });
  }
};

/* Heat map: a row for each module, colour by the logarithm of the value. */
Report.heatColour = (share) => {
  const stops = [[34, 40, 84], [76, 54, 140], [168, 60, 118], [226, 98, 62], [250, 178, 74], [252, 244, 190]];
  const at = Math.max(0, Math.min(1, share)) * (stops.length - 1), low = Math.min(Math.floor(at), stops.length - 2);
  return stops[low].map((v, i) => Math.round(v + (stops[low + 1][i] - v) * (at - low)));
};

Report.drawHeat = (chart) => {
  const { spec, element } = chart, rows = spec.rows.length;
  const steps = chart.steps || (chart.steps = Array.from(new Float64Array(Report.bytes(spec.steps))));
  const values = Report.values(spec.values), columns = steps.length;
  const logs = values.map((v) => (v !== null && v > 0 ? Math.log10(v) : null));
  const known = logs.filter((v) => v !== null).sort((a, b) => a - b);
  const low = known[Math.floor(0.01 * (known.length - 1))] ?? 0, high = known[Math.ceil(0.995 * (known.length - 1))] ?? 1;
  const labelled = Math.min(rows, 40), room = 92, foot = 24, perRow = Math.max(3, Math.min(22, Math.floor(420 / rows)));
  element.style.height = rows * perRow + foot + "px";
  const width = Math.max(80, element.clientWidth), height = rows * perRow + foot, dot = devicePixelRatio;
  const canvas = document.createElement("canvas");
  canvas.className = "heat";
  canvas.width = width * dot; canvas.height = height * dot;
  canvas.style.width = width + "px"; canvas.style.height = height + "px";
  element.append(canvas);
  const ctx = canvas.getContext("2d"), plot = width - room - 6;
  ctx.scale(dot, dot);
  const picture = document.createElement("canvas");
  picture.width = columns; picture.height = rows;
  const pixels = picture.getContext("2d").createImageData(columns, rows);
  logs.forEach((v, i) => {
    if (v === null) return;
    const [r, g, b] = Report.heatColour((v - low) / (high - low || 1));
    pixels.data.set([r, g, b, 255], 4 * i);
  });
  picture.getContext("2d").putImageData(pixels, 0, 0);
  const zoom = Report.view.unit === "step" ? Report.view.zoom : null;
  let from = 0, to = columns - 1;
  if (zoom) {
    while (from < columns - 1 && steps[from + 1] <= zoom.min) from++;
    while (to > from && steps[to] > zoom.max) to--;
  }
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(picture, from, 0, to - from + 1, rows, room, 0, plot, rows * perRow);
  ctx.fillStyle = Report.colour("soft");
  ctx.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  ctx.textAlign = "right"; ctx.textBaseline = "middle";
  const every = Math.ceil(14 / perRow);
  spec.rows.forEach((name, i) => { if (i % every === 0 || rows <= labelled && perRow >= 11) ctx.fillText(name, room - 8, (i + 0.5) * perRow, room - 10); });
  ctx.textBaseline = "alphabetic";
  // Each label below the middle of its column, as many as there are columns and room for.
  const shownColumns = to - from + 1, labels = Math.min(shownColumns, 5, Math.max(1, Math.floor(plot / 80)));
  const named = new Set(Array.from({ length: labels }, (_, i) => from + Math.round(labels === 1 ? (to - from) / 2 : (i * (to - from)) / (labels - 1))));
  for (const column of named) {
    const text = "step " + Report.formats.step(steps[column]), half = ctx.measureText(text).width / 2;
    const middle = room + ((column - from + 0.5) / shownColumns) * plot;
    ctx.textAlign = "center";
    ctx.fillText(text, Math.max(room + half, Math.min(room + plot - half, middle)), height - 6);
  }
  const legend = chart.legend;
  const show = (text) => { legend.textContent = text; };
  show(`${Report.formats.number(10 ** low)} (dark) to ${Report.formats.number(10 ** high)} (light)`);
  canvas.onmousemove = (event) => {
    const row = Math.floor(event.offsetY / perRow), column = from + Math.floor(((event.offsetX - room) / plot) * (to - from + 1));
    if (row < 0 || row >= rows || column < from || column > to) return;
    const value = values[row * columns + column];
    show(`step ${Report.formats.step(steps[column])} · ${spec.rows[row]} · ${value === null ? "not finite or not recorded" : Report.formats.number(value)}`);
  };
};
