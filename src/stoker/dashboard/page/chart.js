/* One chart: curves of one or several runs, raw behind smoothed, with outliers, gaps and findings marked.

   spec: { id, title, format, lines: (run) => [{ name, label, colour }], main, stack, floor, limit: (run) => y, points, linear } */
import { colour, el, faded, later, lineColour, perFrame, replace } from "./dom.js";
import { gravity } from "./findings.js";
import { spelled, ticks } from "./format.js";
import { logarithmicTicks } from "./logarithm.js";
import { reach, smoothed } from "./smoothing.js";
import { changeView, view } from "./view.js";
import { columns, query } from "./wire.js";
import { words } from "./words.js";

const MARGIN = 0.5; // How much more than the picture is fetched on either side, so that panning shows something at once.
const OUTSIDE = 3;
const PIN = 14; // How wide a pin is.
const DISTANCES = { step: Array.from({ length: 48 }, (_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3)), bytes: Array.from({ length: 60 }, (_, power) => 2 ** power) };
export const unitFormat = () => ({ step: "step", tokens: "tokens", hours: "hours", flops: "flops" })[view.unit];
const valued = (value) => value !== null && value !== undefined && !Number.isNaN(value);

export class Chart {
  constructor(spec, page) {
    this.spec = spec;
    this.page = page; // { runs(): facts of the runs, open(run, step), findings(id), places(id) }
    this.hidden = new Set();
    this.span = null;
    this.lines = [];
    this.seen = false;
    this.asked = 0;
    this.bytes = 0;
    this.first = new Promise((done) => { this.hasDrawn = done; });
    this.plot = el("div", { class: spec.main ? "plot tall" : "plot", tabindex: "0", role: "group", "aria-label": spec.title(), onkeydown: (event) => this.key(event) });
    this.legend = el("div", { class: "legend" });
    this.at = el("span", { class: "at" });
    this.element = el("figure", { class: "card" + (spec.main || spec.wide ? " wide" : ""), id: "chart-" + spec.id },
      el("figcaption", {}, el("h3", { text: spec.title() }), el("span", { class: "note", text: spec.note ? spec.note() : "" }), this.at), this.plot, this.legend);
    this.fetchLater = later(() => this.fetch(), 90);
    this.redraw = perFrame(() => this.draw());
    this.watcher = new IntersectionObserver((entries) => this.shown(entries.some((entry) => entry.isIntersecting)), { rootMargin: "200px" });
    this.watcher.observe(this.element);
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(this.plot);
    this.pointer();
  }

  close() {
    this.watcher.disconnect();
    this.sizes.disconnect();
    this.abort?.abort();
    this.u?.destroy();
  }

  async shown(seen) {
    this.seen = seen;
    if (!this.spec.main) await this.page.loss?.first; // The server is busy with one curve at first: the one that all look at.
    if (this.seen && this.stale !== false) this.fetch();
  }

  /* Something has changed: what is looked at is fetched now, the rest when it comes into sight. */
  changed(what) {
    if (what === "look") { this.rebuild(); return; }
    if (what === "run") return; // all runs are shown
    this.stale = true;
    if (what === "zoom") { this.follow(); if (this.seen) this.fetchLater(); return; }
    if (this.seen) this.fetch();
  }

  width() { return Math.max(120, this.plot.clientWidth); }

  async fetch() {
    this.stale = false;
    this.abort?.abort();
    const abort = (this.abort = new AbortController()), wanted = [];
    for (const run of this.page.runs()) {
      const lines = this.spec.lines(run).slice(0, 64);
      if (lines.length) wanted.push({ run, lines });
    }
    const zoom = view.zoom, wide = zoom ? (zoom[1] - zoom[0]) * MARGIN : 0;
    const pixels = Math.min(8000, Math.round(this.width() * (zoom ? 1 + 2 * MARGIN : 1)));
    const stretch = zoom ? { begin: zoom[0] - wide, end: zoom[1] + wide } : {};
    try {
      const answers = await Promise.all(wanted.map(({ run, lines }) =>
        columns(`/api/run/${run.id}/lines?` + query({ line: lines.map((line) => line.name), unit: view.unit, pixels, ...stretch }), abort.signal)));
      this.bytes = answers.reduce((sum, answer) => sum + answer.bytes, 0);
      this.take(wanted, answers);
    } catch (error) {
      if (error.name !== "AbortError") { this.stale = true; this.empty(String(error.message)); }
    }
  }

  take(wanted, answers) {
    const several = wanted.length > 1;
    this.lines = [];
    let span = null;
    answers.forEach(({ header, found }, k) => {
      const { run, lines } = wanted[k];
      if (header.span) span = span ? [Math.min(span[0], header.span[0]), Math.max(span[1], header.span[1])] : header.span;
      for (const told of header.lines) {
        const line = lines.find((one) => one.name === told.name);
        if (!found[told.raw].some(valued)) continue;
        const alone = lines.length === 1 && several;
        // What tells the curves of one run apart comes first: long names are cut at their end.
        const label = several ? (lines.length === 1 ? run.name : `${line.label} · ${run.name}`) : line.label;
        this.lines.push({ run, name: told.name, label, colour: alone ? run.colour : line.colour, dash: several && !alone ? run.place : 0, x: found[told.x], raw: found[told.raw], mean: told.mean ? found[told.mean] : null, marks: told.not_finite });
      }
    });
    this.span = span;
    this.rebuild();
  }

  empty(text) {
    this.hasDrawn();
    this.element.classList.add("empty");
    this.element.hidden = Boolean(this.spec.optional);
    this.shape = null;
    this.u?.destroy();
    this.u = null;
    replace(this.plot, el("p", { class: "nothing", text }));
    replace(this.legend);
  }

  /* uPlot's table: places, then for each line its raw and its smoothed values. */
  table() {
    const groups = new Map();
    for (const line of this.lines) {
      const raw = Array.from(line.raw, (value) => (Number.isNaN(value) ? null : value));
      let even = raw;
      if (this.smooths() && line.mean) {
        const means = smoothed(Array.from(line.mean), reach(view.smoothing, line.mean.length));
        even = raw.map((_, i) => means[Math.min(i >> 1, means.length - 1)]);
      } else if (this.smooths()) even = smoothed(raw, reach(view.smoothing, raw.length));
      if (!groups.has(line.x)) groups.set(line.x, []);
      // Between values that are not finite nothing was recorded that a line could stand for.
      groups.get(line.x).push({ line, raw, even: even === raw ? raw : even.map((value, i) => (raw[i] === null ? null : value)) });
    }
    const ordered = [...groups.values()].flat();
    this.lines = ordered.map((one) => one.line);
    const tables = [...groups].map(([x, own]) => [Array.from(x), ...own.flatMap((one) => [one.raw, one.even])]);
    return tables.length > 1 ? uPlot.join(tables) : tables[0];
  }

  smooths() { return !this.spec.points && !this.spec.stack && !this.spec.linear && view.smoothing > 0; }

  stacked(data) {
    const sums = new Array(data[0].length).fill(0), found = [data[0]];
    this.lines.forEach((line, i) => {
      const raw = line.mean ? data[0].map((_, k) => line.mean[Math.min(k >> 1, line.mean.length - 1)]) : data[2 * i + 1];
      if (!this.hidden.has(line.label)) raw.forEach((value, k) => { sums[k] += valued(value) ? value : 0; });
      found.push(sums.slice());
    });
    return found;
  }

  series() {
    if (this.spec.stack) {
      return this.lines.map((line) => ({ show: !this.hidden.has(line.label), stroke: lineColour(line.colour), width: 1, fill: faded(lineColour(line.colour), 0.55), points: { show: false } }));
    }
    return this.lines.flatMap((line) => {
      const tone = lineColour(line.colour), show = !this.hidden.has(line.label), smooth = this.smooths();
      const dash = line.dash ? [6 - line.dash, 2 + line.dash] : undefined;
      const points = { show: this.spec.points || line.raw.length === 1, size: 5, fill: tone };
      return [
        { show, stroke: smooth ? faded(tone, 0.35) : tone, mark: tone, width: smooth ? 1 : 1.5, dash: smooth ? undefined : dash, points, spanGaps: false, pxAlign: 0 },
        { show: show && smooth, stroke: tone, width: 1.8, dash, points: { show: false }, spanGaps: false, pxAlign: 0 },
      ];
    });
  }

  rebuild() {
    if (!this.lines.length || !this.lines.some((line) => line.raw.some(valued))) {
      this.empty(this.spec.empty ? this.spec.empty() : words("noAxis"));
      return;
    }
    this.element.classList.remove("empty");
    this.element.hidden = false;
    const table = this.table(), data = this.spec.stack ? this.stacked(table) : table;
    const key = JSON.stringify([this.lines.map((line) => [line.label, line.colour, line.raw.length === 1]), [...this.hidden], view.log, view.logX, view.smoothing > 0, document.documentElement.dataset.theme, view.unit]);
    this.quiet = true;
    if (this.u && this.shape === key) this.u.setData(data, false);
    else {
      this.u?.destroy();
      this.plot.replaceChildren();
      this.u = new uPlot(this.options(), data, this.plot);
      this.shape = key;
    }
    this.follow();
    this.quiet = false;
    this.name();
    this.read();
    this.hasDrawn();
    document.dispatchEvent(new CustomEvent("drawn", { detail: this.spec.id }));
  }

  options() {
    const style = { stroke: colour("soft"), font: "11px " + getComputedStyle(document.body).fontFamily, ticks: { show: false }, grid: { stroke: colour("grid"), width: 1 } };
    const log = view.log && !this.spec.stack && !this.spec.linear, logX = view.logX && view.unit !== "hours", format = this.spec.format || "number";
    const apart = (space, side) => (u, axis, min, max) => logarithmicTicks(min, max, Math.max(2, Math.floor(u[side] / space)));
    const bands = this.spec.stack ? this.lines.slice(1).map((line, i) => ({ series: [i + 2, i + 1], fill: faded(lineColour(line.colour), 0.55) })) : undefined;
    return {
      width: this.width(), height: this.plot.clientHeight, legend: { show: false }, bands, padding: [8, 18, 0, 0],
      cursor: { sync: { key: "places", scales: ["x", null], setSeries: false }, drag: { x: true, y: false, setScale: false }, y: false, points: { size: 6 }, bind: { mousedown: (u, target, act) => (event) => (event.shiftKey ? null : act(event)), dblclick: () => () => changeView({ zoom: null }, "zoom") } },
      scales: { x: { time: false, distr: logX ? 3 : 1, range: () => this.shownSpan() }, y: { distr: log ? 3 : 1, range: (u) => this.heights(u, log) } },
      axes: [
        { ...style, size: 24, gap: 4, space: 70, incrs: view.unit === "hours" ? undefined : DISTANCES.step, splits: logX ? apart(70, "width") : undefined, filter: logX ? (u, splits) => splits : undefined, values: (u, splits) => ticks(splits, unitFormat()), grid: { show: false } },
        { ...style, size: (u, texts) => room(texts, this.spec.main ? 80 : 62), gap: 6, space: 30, incrs: DISTANCES[format], splits: log ? apart(34, "height") : undefined, filter: log ? (u, splits) => splits : undefined, values: (u, splits) => ticks(splits, format) },
      ],
      series: [{}, ...this.series()],
      hooks: { draw: [(u) => this.mark(u)], setCursor: [() => this.read()], setSelect: [(u) => this.selected(u)] },
    };
  }

  shownSpan() {
    const [begin, end] = view.zoom || this.span || [0, 1];
    return end > begin ? [begin, end] : [begin - 0.5, begin + 0.5];
  }

  /* The bulk of the values, so that one spike does not flatten the rest; what is beyond is marked. */
  heights(u, log) {
    const [from, to] = this.shownSpan(), x = u.data[0], values = [];
    const first = Math.max(0, nearest(x, from) - 1), last = Math.min(x.length - 1, nearest(x, to) + 1);
    const chosen = this.spec.stack ? [u.data.length - 1] : u.series.map((_, i) => i).filter((i) => i && u.series[i].show && (i % 2 || !this.spec.bulk));
    for (const i of chosen) {
      const y = u.data[i];
      for (let k = first; k <= last; k++) if (valued(y[k]) && (!log || y[k] > 0)) values.push(y[k]);
    }
    if (!values.length) return log ? [0.1, 1] : [0, 1];
    values.sort((a, b) => a - b);
    const place = (share) => values[Math.floor(share * (values.length - 1))];
    let [bottom, top] = [values[0], values[values.length - 1]];
    if (view.clip && values.length > 30) {
      const apart = place(0.98) - place(0.02) || Math.abs(place(0.5)) * 0.1 || 1;
      const early = this.spec.stack ? -Infinity : place(0.02) - OUTSIDE * apart;
      bottom = values.find((value) => value >= early);
      top = values.findLast((value) => value <= place(0.98) + (this.spec.stack ? 0.5 : OUTSIDE) * apart);
    }
    if (log) return [bottom / 1.12, top * 1.12];
    const floor = this.spec.stack ? 0 : this.spec.floor;
    // Figures travel with seven digits: what differs by less is one value, and no axis of its rounding is drawn.
    const flat = top - bottom <= 1e-6 * Math.max(Math.abs(top), Math.abs(bottom));
    const room = flat ? Math.abs(top) * 0.1 || 1 : (top - bottom) * 0.06;
    return [floor !== undefined && bottom >= floor ? floor : bottom - room, top + room];
  }

  follow() {
    if (!this.u) return;
    const [min, max] = this.shownSpan();
    this.u.setScale("x", { min, max });
    this.pins();
  }

  draw() { this.u?.redraw(false); }

  resize() {
    if (!this.u || (this.u.width === this.width() && this.u.height === this.plot.clientHeight)) return;
    this.u.setSize({ width: this.width(), height: this.plot.clientHeight });
    this.pins();
    document.dispatchEvent(new CustomEvent("drawn", { detail: this.spec.id }));
  }

  mark(u) {
    const { ctx } = u, { left, top, width, height } = u.bbox, dot = devicePixelRatio || 1;
    ctx.save();
    ctx.beginPath(); ctx.rect(left, top, width, height); ctx.clip();
    const limit = this.spec.limit ? this.spec.limit(this.page.runs()[0]) : null;
    if (typeof limit === "number") line(ctx, left, u.valToPos(limit, "y", true), left + width, null, colour("faint"), dot, [3 * dot, 3 * dot]);
    ctx.fillStyle = ctx.strokeStyle = colour("bad");
    for (const one of this.lines) {
      if (this.hidden.has(one.label)) continue;
      for (const [place] of one.marks) {
        const x = u.valToPos(place, "x", true);
        line(ctx, x, top + height, x, top + height - 12 * dot, colour("bad"), 2 * dot, []);
      }
    }
    const size = 4 * dot, ceiling = u.scales.y.max, floor = u.scales.y.min;
    u.series.forEach((series, i) => {
      if (!series.mark || !series.show) return;
      ctx.fillStyle = series.mark;
      const x = u.data[0], y = u.data[i], [from, to] = this.shownSpan();
      for (let k = Math.max(0, nearest(x, from)); k < y.length && x[k] <= to; k++) {
        if (!valued(y[k]) || (y[k] <= ceiling && y[k] >= floor) || (view.log && y[k] <= 0)) continue;
        const at = u.valToPos(x[k], "x", true), up = y[k] > ceiling;
        const edge = up ? top : top + height, way = up ? 1.6 : -1.6;
        ctx.beginPath(); ctx.moveTo(at, edge); ctx.lineTo(at - size, edge + way * size); ctx.lineTo(at + size, edge + way * size); ctx.fill();
      }
    });
    ctx.restore();
  }

  /* Findings as buttons above the curve: they can be reached with the keyboard. */
  pins() {
    if (!this.spec.main || !this.u) return;
    this.plot.querySelectorAll(".pin").forEach((pin) => pin.remove());
    const { left, width } = this.u.over.getBoundingClientRect(), frame = this.plot.getBoundingClientRect();
    for (const near of this.pinned(width)) {
      const [{ run, finding, x }] = near, title = near.length === 1 ? this.page.title(finding) : words("severalFindings", near.length, this.page.title(finding));
      const pin = el("button", { class: "pin " + finding.severity, title, "aria-label": title, onclick: (event) => { event.stopPropagation(); this.page.finding(run, finding); } });
      pin.style.left = left - frame.left + x + "px";
      this.plot.append(pin);
    }
  }

  /* Findings that would lie over each other share a pin, which is that of the gravest. */
  pinned(width) {
    const found = [];
    for (const run of this.page.runs()) {
      for (const finding of this.page.findings(run.id)) {
        const at = finding.first_step === null ? null : this.page.placeOf(run.id, finding.first_step), x = at === null ? NaN : this.u.valToPos(at, "x");
        if (x >= 0 && x <= width) found.push({ run, finding, x });
      }
    }
    const groups = [];
    for (const one of found.sort((a, b) => a.x - b.x)) {
      const last = groups[groups.length - 1];
      if (last && one.x - last[0].x < PIN) last.push(one); else groups.push([one]);
    }
    return groups.map((near) => near.sort((a, b) => gravity(a.finding) - gravity(b.finding)));
  }

  name() {
    if (this.lines.length < 2 && this.page.runs().length < 2) { replace(this.legend); return; }
    replace(this.legend, ...this.lines.map((one) => {
      const key = el("i"), value = el("b");
      key.style.background = lineColour(one.colour);
      one.shown = value;
      return el("button", { class: this.hidden.has(one.label) ? "off" : "", "aria-pressed": String(!this.hidden.has(one.label)), title: one.label, onclick: (event) => this.toggle(one.label, event.altKey || event.ctrlKey || event.metaKey) }, key, el("span", { text: one.label }), value);
    }));
  }

  toggle(label, alone) {
    const labels = this.lines.map((one) => one.label);
    if (alone) this.hidden = new Set(labels.filter((one) => one !== label));
    else if (!this.hidden.delete(label)) this.hidden.add(label);
    if (labels.every((one) => this.hidden.has(one))) this.hidden.clear();
    this.rebuild();
  }

  /* Values under the cursor, else the newest. */
  read() {
    if (!this.u) return;
    const x = this.u.data[0], under = this.u.cursor.idx, format = this.spec.format || "number";
    const from = under ?? x.length - 1;
    const value = (line, i) => {
      const y = this.spec.stack ? line.raw : this.u.data[2 * i + 1];
      for (let k = Math.min(from, y.length - 1), tries = 0; k >= 0 && tries < 400; k--, tries++) if (valued(y[k])) return y[k];
      return null;
    };
    this.lines.forEach((line, i) => { if (line.shown) line.shown.textContent = spelled(value(line, i), format); });
    const place = spelled(x[from], unitFormat()), where = view.unit === "step" ? words("atStep", place) : place;
    this.at.textContent = this.lines.length === 1 ? `${where} · ${spelled(value(this.lines[0], 0), format)}` : where;
  }

  selected(u) {
    const { left, width } = u.select;
    if (width > 4) changeView({ zoom: [u.posToVal(left, "x"), u.posToVal(left + width, "x")] }, "zoom");
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  }

  pointer() {
    let begun = null;
    this.plot.addEventListener("pointerdown", (event) => {
      if (!this.u || event.button > 1 || event.target.closest("button")) return;
      const [min, max] = this.shownSpan();
      begun = { x: event.clientX, y: event.clientY, span: [min, max], pan: event.shiftKey || event.button === 1, moved: false };
      if (begun.pan) { this.plot.setPointerCapture(event.pointerId); event.preventDefault(); }
    });
    this.plot.addEventListener("pointermove", (event) => {
      if (!begun) return;
      if (Math.abs(event.clientX - begun.x) > 3) begun.moved = true;
      if (begun.pan) this.shift(begun.span, ((begun.x - event.clientX) / this.u.over.clientWidth));
    });
    this.plot.addEventListener("pointerup", (event) => {
      if (begun && !begun.moved && !begun.pan && event.button === 0) this.click(event);
      begun = null;
    });
    this.plot.addEventListener("wheel", (event) => {
      if (!this.u) return;
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!event.ctrlKey && !event.altKey && !sideways && !event.shiftKey) return;
      event.preventDefault();
      const inside = (event.clientX - this.u.over.getBoundingClientRect().left) / this.u.over.clientWidth;
      if (event.ctrlKey || event.altKey) this.scale(Math.exp(event.deltaY * 0.002), inside);
      else this.shift(this.shownSpan(), (event.deltaX || event.deltaY) / this.u.over.clientWidth);
    }, { passive: false });
  }

  shift([min, max], share) {
    if (view.logX && view.unit !== "hours" && min > 0) {
      const factor = (max / min) ** share;
      changeView({ zoom: [min * factor, max * factor] }, "zoom");
    } else changeView({ zoom: [min + share * (max - min), max + share * (max - min)] }, "zoom");
  }

  scale(factor, around = 0.5) {
    const [min, max] = this.shownSpan(), middle = min + around * (max - min);
    const zoom = [middle - (middle - min) * factor, middle + (max - middle) * factor], whole = this.span || zoom;
    changeView({ zoom: zoom[0] <= whole[0] && zoom[1] >= whole[1] ? null : zoom }, "zoom");
  }

  key(event) {
    if (!this.u || event.ctrlKey || event.metaKey || event.altKey || event.target !== this.plot) return;
    const acts = { ArrowLeft: () => this.shift(this.shownSpan(), -0.15), ArrowRight: () => this.shift(this.shownSpan(), 0.15), "+": () => this.scale(0.6), "=": () => this.scale(0.6), "-": () => this.scale(1 / 0.6), 0: () => changeView({ zoom: null }, "zoom"), Enter: () => this.open(this.u.cursor.left > 0 ? this.u.posToVal(this.u.cursor.left, "x") : this.shownSpan()[1]) };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  click(event) {
    const box = this.u.over.getBoundingClientRect(), x = event.clientX - box.left;
    if (x >= 0 && x <= box.width) this.open(this.u.posToVal(x, "x"));
  }

  open(at) {
    const [min, max] = this.shownSpan(), first = this.lines.find((one) => !this.hidden.has(one.label)) || this.lines[0];
    if (first) this.page.near(first.run, at, ((max - min) / this.u.over.clientWidth) * 5, first.name);
  }
}

/* How wide an axis is, so that its longest label is whole. */
const LETTER = 6.6;
const room = (texts, least) => Math.max(least, 14 + Math.ceil(LETTER * Math.max(0, ...(texts || []).map((text) => text.length))));

function line(ctx, x, y, toX, toY, tone, width, dash) {
  ctx.strokeStyle = tone;
  ctx.lineWidth = width;
  ctx.setLineDash(dash);
  ctx.beginPath(); ctx.moveTo(x, y); ctx.lineTo(toX, toY ?? y); ctx.stroke();
  ctx.setLineDash([]);
}

/* Where in ascending `x` the first place at or after `at` is. */
export function nearest(x, at) {
  let low = 0, high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < at) low = middle + 1; else high = middle;
  }
  return Math.min(low, x.length - 1);
}
