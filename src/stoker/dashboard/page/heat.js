/* Heat maps: a row for each rank or module, a column for each step or stretch of steps. */
import { canvasOf, colour, el, later, replace } from "./dom.js";
import { spelled } from "./format.js";
import { view } from "./view.js";
import { WhichRun } from "./which.js";
import { columns, query } from "./wire.js";
import { words } from "./words.js";

const LABELS = { ranks: 96, modules: 140 }, FOOT = 22;
const STOPS = [[33, 38, 74], [58, 76, 138], [44, 127, 148], [92, 168, 116], [214, 190, 84], [226, 112, 60], [168, 32, 62]];

export const heatColour = (share) => {
  const at = Math.max(0, Math.min(1, share)) * (STOPS.length - 1), low = Math.min(Math.floor(at), STOPS.length - 2);
  return STOPS[low].map((value, i) => Math.round(value + (STOPS[low + 1][i] - value) * (at - low)));
};

export class HeatMap {
  /* of: "ranks" or "modules"; measures: (run) => [[measure, name, format]] */
  constructor(of, page, measures) {
    Object.assign(this, { of, page, measures, seen: false, stale: true, cell: null });
    this.choice = el("select", { "aria-label": words("measure"), onchange: () => this.fetch() });
    this.which = new WhichRun(page);
    this.at = el("span", { class: "at", "aria-live": "polite" }); // with the keyboard one hears which cell it is
    this.plot = el("div", { class: "plot heat", tabindex: "0", role: "img", "aria-label": words(of === "ranks" ? "rankMap" : "moduleMap"),
      onpointermove: (event) => this.over(event), onpointerleave: () => this.point(null), onclick: (event) => { this.over(event); this.open(); }, onkeydown: (event) => this.key(event) });
    this.scale = el("div", { class: "scale" });
    this.element = el("figure", { class: "card wide", id: "heat-" + of },
      el("figcaption", {}, el("h3", { text: words(of === "ranks" ? "rankMap" : "moduleMap") }), this.which.element, this.choice, el("span", { class: "note", text: `${words("largestOf")} · ${words(of === "ranks" ? "clickCell" : "clickModule")}` }), this.at), this.plot, this.scale);
    this.fetchLater = later(() => this.fetch(), 160);
    this.watcher = new IntersectionObserver((entries) => { this.seen = entries.some((one) => one.isIntersecting); if (this.seen && this.stale) this.fetch(); }, { rootMargin: "150px" });
    this.watcher.observe(this.element);
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(this.element);
  }

  close() { this.watcher.disconnect(); this.sizes.disconnect(); this.abort?.abort(); }

  changed(what) {
    if (what === "look") { this.draw(); return; }
    this.stale = true;
    if (this.seen) this.fetchLater();
  }

  /* The stretch of steps that is looked at, also where the charts show tokens or hours. */
  stretch(run) {
    if (!view.zoom) return {};
    if (view.unit === "step") return { begin: view.zoom[0], end: view.zoom[1] };
    const steps = this.page.stepsOf(run.id, view.zoom);
    return steps ? { begin: steps[0], end: steps[1] } : {};
  }

  async fetch() {
    const run = this.which.run();
    if (!run) return;
    this.stale = false;
    const offered = this.measures(run), before = this.choice.value;
    replace(this.choice, ...offered.map(([value, text]) => el("option", { value, text })));
    if (offered.some(([value]) => value === before)) this.choice.value = before;
    if (!offered.length) { this.empty(words("none", words(this.of === "ranks" ? "rankMap" : "moduleMap"), words(this.of === "ranks" ? "why_old" : "why_every"))); return; }
    this.format = offered.find(([value]) => value === this.choice.value)[2];
    this.abort?.abort();
    const abort = (this.abort = new AbortController()), pixels = Math.max(60, Math.round((this.element.clientWidth - LABELS[this.of]) / 2));
    try {
      const { header, found } = await columns(`/api/run/${run.id}/heat?` + query({ of: this.of, measure: this.choice.value, pixels, ...this.stretch(run) }), abort.signal);
      Object.assign(this, { run, rows: header.rows, absent: new Set(header.missing), count: header.columns_of_steps, edges: found.edges, cells: found.cells });
      this.draw();
    } catch (error) {
      if (error.name !== "AbortError") this.empty(error.message);
    }
  }

  empty(text) { this.cells = null; this.plot.style.height = ""; replace(this.plot, el("p", { class: "nothing", text })); replace(this.scale); }

  draw() {
    if (!this.cells) return;
    if (!this.rows.length || !this.count) { this.empty(words("noAxis")); return; }
    const rows = this.rows.length, each = Math.max(rows > 400 ? 1 : 3, Math.min(18, Math.floor(420 / rows)));
    const width = Math.max(200, this.plot.clientWidth), height = rows * each + FOOT;
    this.plot.querySelectorAll("p").forEach((one) => one.remove());
    this.plot.style.height = height + "px";
    const context = canvasOf(this.plot, width, height), wide = width - LABELS[this.of] - 4;
    const known = Array.from(this.cells).filter((value) => !Number.isNaN(value)).sort((a, b) => a - b);
    const place = (share) => known[Math.round(share * (known.length - 1))];
    let [low, high] = known.length ? [place(0.01), place(0.995)] : [0, 1];
    const log = low > 0 && high / low > 30, scaled = log ? Math.log : (value) => value;
    [low, high] = [scaled(low), scaled(high)];
    // Noise may not look like a finding: the colours span at least a tenth of the value.
    if (!log && high - low < 0.1 * Math.abs(high)) { const middle = (low + high) / 2, half = 0.05 * Math.abs(high) || 0.5; [low, high] = [middle - half, middle + half]; }
    const picture = new OffscreenCanvas(this.count, rows), paint = picture.getContext("2d"), pixels = paint.createImageData(this.count, rows);
    this.cells.forEach((value, i) => {
      if (Number.isNaN(value) || (log && value <= 0)) return;
      pixels.data.set([...heatColour((scaled(value) - low) / (high - low || 1)), 255], 4 * i);
    });
    paint.putImageData(pixels, 0, 0);
    context.imageSmoothingEnabled = false;
    context.fillStyle = colour("grid");
    context.fillRect(LABELS[this.of], 0, wide, rows * each);
    context.drawImage(picture, 0, 0, this.count, rows, LABELS[this.of], 0, wide, rows * each);
    this.rows.forEach((name, i) => { if (this.absent.has(name)) hatch(context, LABELS[this.of], i * each, wide, each); });
    this.size = { each, wide, width, height };
    this.labels(context, rows, each, wide);
    this.key_of(low, high, log);
    if (this.cell) this.frame(context);
  }

  labels(context, rows, each, wide) {
    context.fillStyle = colour("soft");
    context.textAlign = "right";
    context.textBaseline = "middle";
    const every = Math.ceil(13 / each);
    this.rows.forEach((name, i) => { if (i % every === 0) context.fillText(this.of === "ranks" ? words("rank", name) : name, LABELS[this.of] - 8, (i + 0.5) * each, LABELS[this.of] - 12); });
    context.textAlign = "center";
    const shown = Math.max(1, Math.min(this.count, Math.floor(wide / 110)));
    for (let k = 0; k < shown; k++) {
      const column = shown === 1 ? 0 : Math.round((k * (this.count - 1)) / (shown - 1)), x = LABELS[this.of] + ((column + 0.5) * wide) / this.count;
      context.textAlign = k === 0 ? "left" : k === shown - 1 ? "right" : "center";
      context.fillText(spelled(this.edges[column], "step"), k === 0 ? LABELS[this.of] : k === shown - 1 ? LABELS[this.of] + wide : x, rows * each + 13);
    }
  }

  key_of(low, high, log) {
    const back = log ? Math.exp : (value) => value, strip = el("canvas", { width: 160, height: 1 });
    const context = strip.getContext("2d");
    for (let i = 0; i < 160; i++) { const [r, g, b] = heatColour(i / 159); context.fillStyle = `rgb(${r},${g},${b})`; context.fillRect(i, 0, 1, 1); }
    replace(this.scale, el("span", { text: "≤ " + spelled(back(low), this.format, 3) }), strip, el("span", { text: "≥ " + spelled(back(high), this.format, 3) }));
  }

  over(event) {
    if (!this.cells || !this.size) return;
    const box = this.plot.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left - LABELS[this.of]) / this.size.wide) * this.count), row = Math.floor((event.clientY - box.top) / this.size.each);
    this.point(column >= 0 && column < this.count && row >= 0 && row < this.rows.length ? { row, column } : null);
  }

  point(cell) {
    this.cell = cell;
    if (!cell || !this.cells) { this.at.textContent = ""; return; }
    const [first, last] = [this.edges[cell.column], this.edges[cell.column + 1] - 1], value = this.cells[cell.row * this.count + cell.column];
    const name = this.of === "ranks" ? words("rank", this.rows[cell.row]) : this.rows[cell.row];
    this.at.textContent = `${name} · ${words("steps", spelled(first, "step"), spelled(last, "step"))} · ${this.absent.has(this.rows[cell.row]) ? words("noRecord") : spelled(value, this.format)}`;
  }

  frame(context) {
    const { each, wide } = this.size;
    context.strokeStyle = colour("text");
    context.lineWidth = 1.5;
    context.strokeRect(LABELS[this.of] + (this.cell.column * wide) / this.count - 1, this.cell.row * each - 0.5, Math.max(3, wide / this.count) + 1, each + 1);
  }

  async open() {
    if (!this.cell || !this.cells) return;
    const [first, last] = [this.edges[this.cell.column], this.edges[this.cell.column + 1] - 1], [kind, ...rest] = this.choice.value.split(":");
    const name = this.of === "ranks" ? `${kind}:${this.rows[this.cell.row]}:${rest.join(":")}` : kind === "step" ? `step:0:${rest.join(":")}.${this.rows[this.cell.row]}` : `${kind}:0:${rest.join(":")}:${this.rows[this.cell.row]}`;
    await this.page.near(this.run, (first + last) / 2, Math.max(0.5, (last - first) / 2), name, "step", this.of === "ranks" ? "timeline" : null);
  }

  key(event) {
    if (!this.cells || event.target !== this.plot) return;
    const cell = this.cell || { row: 0, column: this.count - 1 };
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.key === "Enter") { this.open(); return; }
    if (!moves[event.key]) return;
    event.preventDefault();
    const limit = (value, count) => Math.max(0, Math.min(count - 1, value));
    this.point({ row: limit(cell.row + moves[event.key][0], this.rows.length), column: limit(cell.column + moves[event.key][1], this.count) });
    this.draw();
  }
}

/* Where nothing was recorded at all: neither a colour of the scale nor one that could be taken for a low value. */
function hatch(context, left, top, width, height) {
  context.save();
  context.beginPath(); context.rect(left, top, width, height); context.clip();
  context.strokeStyle = colour("faint");
  context.lineWidth = 1;
  context.beginPath();
  for (let x = left - height; x < left + width; x += 7) { context.moveTo(x, top + height); context.lineTo(x + height, top); }
  context.stroke();
  context.restore();
}
