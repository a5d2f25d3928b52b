/* Lanes under the loss: what happened when, in line with the curve above. */
import { canvasOf, colour, el, lineColour, perFrame } from "./dom.js";
import { inLanguage, nameOf } from "./names.js";
import { saying, words } from "./words.js";

const HEIGHT = 17;
const ROUTINE = new Set(["saved", "clock", "started", "finished", "ranks_ended"]);
const BAD = new Set(["failure", "non_finite", "gave_up", "save_failed", "supervisor_died", "command_ended", "silent_corruption", "replicas_differ", "divergence", "record_write_failed", "record_rows_lost"]);

export class Lanes {
  constructor(page, chart) {
    this.page = page;
    this.chart = chart;
    this.marks = [];
    this.said = el("div", { class: "note lane-said" });
    this.element = el("div", { class: "lanes", onclick: (event) => this.click(event), onpointermove: (event) => this.over(event), onpointerleave: () => { this.said.textContent = ""; } }, this.said);
    this.drawSoon = perFrame(() => this.draw()); // once the chart above has its new size
    this.heard = (event) => { if (event.detail === chart.spec.id) this.drawSoon(); };
    document.addEventListener("drawn", this.heard);
  }

  close() { document.removeEventListener("drawn", this.heard); }

  rows() {
    const lanes = { laneFindings: [], laneFailures: [], laneSaved: [], laneEvaluated: [], laneStages: [] };
    for (const run of this.page.runs()) {
      const happened = this.page.happened(run.id);
      for (const finding of this.page.findings(run.id)) {
        if (finding.first_step !== null) lanes.laneFindings.push({ run, step: finding.first_step, until: finding.last_step, tone: { alarm: "bad", warning: "warn", note: "faint" }[finding.severity], text: this.page.title(finding), finding });
      }
      for (const event of happened.events || []) {
        if (event.step === null || event.step === undefined) continue;
        if (event.event === "saved") lanes.laneSaved.push({ run, step: event.step, tone: "good", text: saying(nameOf("saved"), inLanguage(event)) });
        else if (!ROUTINE.has(event.event)) lanes.laneFailures.push({ run, step: event.step, tone: BAD.has(event.event) ? "bad" : "accent", text: event.words ? saying(nameOf(event.event), inLanguage(event)) : nameOf(event.event) });
      }
      for (const step of happened.evaluations || []) lanes.laneEvaluated.push({ run, step, tone: "c4", text: nameOf("evaluation") });
      for (const stage of happened.stages || []) lanes.laneStages.push({ run, step: stage.step, tone: "c3", text: saying(nameOf(stage.kind), stage.label) });
    }
    return Object.entries(lanes).filter(([, marks]) => marks.length);
  }

  draw() {
    const u = this.chart.u, rows = u ? this.rows() : [];
    this.element.hidden = !rows.length;
    if (!rows.length) return;
    const width = this.element.clientWidth, left = u.over.offsetLeft, wide = u.over.clientWidth;
    const context = canvasOf(this.element, width, rows.length * HEIGHT + 2);
    this.marks = [];
    rows.forEach(([lane, marks], row) => {
      const middle = row * HEIGHT + HEIGHT / 2 + 1;
      context.strokeStyle = colour("grid");
      context.lineWidth = 1;
      context.beginPath(); context.moveTo(left, middle); context.lineTo(left + wide, middle); context.stroke();
      context.textAlign = "right";
      context.textBaseline = "middle";
      context.fillStyle = colour("soft");
      context.fillText(words(lane), left - 8, middle, left - 10); // beside the lane, where no mark can be
      for (const mark of marks) {
        const at = this.page.placeOf(mark.run.id, mark.step);
        if (at === null) continue;
        const x = left + u.valToPos(at, "x"), end = mark.until ? this.page.placeOf(mark.run.id, mark.until) : null;
        const stop = end === null ? x : Math.min(left + wide, left + u.valToPos(end, "x"));
        if (x > left + wide + 1 || stop < left - 1) continue;
        context.fillStyle = this.page.runs().length > 1 && !["bad", "warn"].includes(mark.tone) ? lineColour(mark.run.colour) : colour(mark.tone);
        context.globalAlpha = 0.45;
        if (stop - x > 3) context.fillRect(Math.max(left, x), middle - 2, stop - Math.max(left, x), 4);
        context.globalAlpha = 1;
        if (x >= left - 1) { context.beginPath(); context.arc(x, middle, 3.2, 0, 7); context.fill(); }
        this.marks.push({ ...mark, x: Math.max(left, x), stop, y: middle });
      }
    });
  }

  at(event) {
    const box = this.element.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null, least = 10;
    for (const mark of this.marks) {
      const away = Math.abs(mark.y - y) > HEIGHT / 2 ? Infinity : x >= mark.x && x <= mark.stop ? 0 : Math.min(Math.abs(x - mark.x), Math.abs(x - mark.stop));
      if (away <= least) [best, least] = [mark, away];
    }
    return best;
  }

  over(event) {
    const mark = this.at(event);
    this.said.textContent = mark ? `${words("atStep", mark.step.toLocaleString("en-US"))} · ${mark.text}` : "";
    this.element.style.cursor = mark ? "pointer" : "";
  }

  click(event) {
    const mark = this.at(event);
    if (!mark) return;
    if (mark.finding) this.page.finding(mark.run, mark.finding);
    else this.page.open(mark.run, mark.step);
  }
}
