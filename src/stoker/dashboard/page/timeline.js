/* One step on every rank: what each did when, and how long it waited for the others. */
import { canvasOf, colour, el, lineColour, replace } from "./dom.js";
import { spelled, ticks } from "./format.js";
import { nameOf } from "./names.js";
import { listed, words } from "./words.js";

const PHASES = ["data", "forward", "backward", "communication", "optimizer", "telemetry", "copies", "checkpoint", "evaluation"];
const LEFT = 58, FOOT = 20;
const tone = (phase) => lineColour(Math.max(0, PHASES.indexOf(phase)) + (PHASES.includes(phase) ? 0 : 9));

export function timeline(told) {
  const plot = el("div", { class: "timeline" }), at = el("p", { class: "note at-line", text: " " }), ranks = told.ranks;
  const recorded = ranks.some((one) => one.recorded);
  const notes = [recorded ? words("timelineRecorded") : words("timelinePhases"), ranks.length > 1 ? words("clockUncertain") : "", told.missing.length ? words("missingRanks", listed(told.missing)) : ""];
  const phases = [...new Set(ranks.flatMap((one) => one.spans.map(([phase]) => phase)))];
  const legend = el("div", { class: "legend" }, ...phases.map((phase) => { const key = el("i"); key.style.background = tone(phase); return el("span", { class: "key" }, key, nameOf(phase)); }));
  const element = el("div", {}, plot, at, legend, el("p", { class: "note", text: notes.filter(Boolean).join(" ") }));
  const each = Math.max(7, Math.min(22, Math.floor(420 / Math.max(1, ranks.length))));
  const ends = ranks.map((one) => (one.began || 0) + Math.max(0, ...one.spans.map(([, from, lasts]) => from + lasts)));
  const end = Math.max(1e-9, ...ends);
  const draw = () => {
    const width = Math.max(200, plot.clientWidth), wide = width - LEFT - 6, height = ranks.length * each + FOOT;
    plot.style.height = height + "px";
    const context = canvasOf(plot, width, height), x = (seconds) => LEFT + (seconds / end) * wide;
    ranks.forEach((one, row) => {
      context.fillStyle = colour("grid");
      context.fillRect(LEFT, row * each + 1, wide, each - 2);
      for (const [phase, from, lasts] of one.spans) {
        context.fillStyle = tone(phase);
        context.fillRect(x((one.began || 0) + from), row * each + 1, Math.max(0.7, (lasts / end) * wide), each - 2);
      }
      context.fillStyle = colour("text");
      for (const [name, arrived] of Object.entries(one.arrived)) {
        const lasts = one.waited[name];
        context.globalAlpha = 0.55;
        if (lasts) context.fillRect(x((one.began || 0) + arrived), row * each + each / 2 - 1, Math.max(1, (lasts / end) * wide), 2);
        context.globalAlpha = 1;
        context.fillRect(x((one.began || 0) + arrived) - 0.5, row * each + 1, 1.2, each - 2);
      }
      if (each >= 11 || row % Math.ceil(12 / each) === 0) {
        context.fillStyle = colour("soft");
        context.textAlign = "right"; context.textBaseline = "middle";
        context.fillText(words("rank", one.rank), LEFT - 6, row * each + each / 2, LEFT - 8);
      }
    });
    const marks = [0, 0.25, 0.5, 0.75, 1].map((share) => share * end);
    const texts = ticks(marks.map((value) => Number(value.toPrecision(3))), "seconds");
    context.fillStyle = colour("soft");
    marks.forEach((value, i) => { context.textAlign = i === 0 ? "left" : i === 4 ? "right" : "center"; context.fillText(texts[i], x(value), ranks.length * each + 12); });
  };
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect(), one = ranks[Math.floor((event.clientY - box.top) / each)];
    const seconds = ((event.clientX - box.left - LEFT) / (box.width - LEFT - 6)) * end;
    const span = one && one.spans.find(([, from, lasts]) => seconds >= (one.began || 0) + from && seconds < (one.began || 0) + from + lasts);
    const waits = one ? listed(Object.entries(one.waited).filter(([, lasts]) => lasts > 0).map(([name, lasts]) => `${nameOf(name)} ${spelled(lasts, "seconds", 3)}`)) : "";
    at.textContent = one ? `${words("rank", one.rank)}${span ? ` · ${nameOf(span[0])} ${spelled(span[2], "seconds", 3)}` : ""}${waits ? ` · ${nameOf("waited")}${words("colon")}${waits}` : ""}` : " ";
  });
  new ResizeObserver(draw).observe(plot);
  return ranks.length ? element : replaceWith(element, el("p", { class: "nothing", text: words("missingRanks", listed(told.missing)) }));
}

function replaceWith(element, ...children) {
  replace(element, ...children);
  return element;
}
