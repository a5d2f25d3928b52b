/* The panel at the side: one step from all sides. */
import { byId, el, replace } from "./dom.js";
import { command, findingCard, quoted } from "./findings.js";
import { moment, spelled } from "./format.js";
import { nameOf } from "./names.js";
import { timeline } from "./timeline.js";
import { json } from "./wire.js";
import { words } from "./words.js";

const FORMATS = { learning_rate: "number", tokens: "count", tokens_seen: "count", memory_peak_bytes: "bytes", memory_reserved_bytes: "bytes", memory_allocated_bytes: "bytes", host_memory_bytes: "bytes", work_seconds: "seconds", first_sample: "step", last_sample: "step" };
const TOLD = ["loss", "gradient_norm", "update_norm", "weight_norm", "learning_rate", "loss_scale", "tokens", "tokens_seen", "accumulation", "clipped", "skipped", "work_seconds", "read_ahead", "memory_peak_bytes", "memory_reserved_bytes", "host_memory_bytes"];
let shown = null;
let before = null;
let touched = null;
addEventListener("pointerdown", (event) => { if (!byId("panel").contains(event.target)) touched = event.target.closest?.(".card, .finding"); }, true);

export const isOpen = () => shown !== null;

export function closePanel() {
  shown = null;
  byId("panel").hidden = true;
  document.body.classList.remove("with-panel");
  before?.focus?.({ preventScroll: true });
}

export async function openStep(page, run, step, section = null, foremost = null) {
  const asked = (shown = { run: run.id, step });
  if (byId("panel").hidden) before = document.activeElement;
  const place = touched?.getBoundingClientRect().top;
  document.body.classList.add("with-panel");
  // The page becomes narrower and so longer: what was clicked stays where it was.
  if (touched?.isConnected) requestAnimationFrame(() => scrollBy(0, touched.getBoundingClientRect().top - place));
  const panel = byId("panel"), texts = el("div", {}, el("p", { class: "note", text: words("reading") })), times = el("div", {}, el("p", { class: "note", text: words("reading") }));
  panel.hidden = false;
  let told;
  try {
    told = await json(`/api/run/${run.id}/moment?step=${step}`);
  } catch (error) {
    replace(panel, head(page, run, step, null), el("p", { class: "banner", text: error.message }));
    return;
  }
  if (shown !== asked) return;
  const findings = page.findings(run.id).filter((one) => one.first_step !== null && step >= one.first_step - 3 && step <= (one.last_step ?? one.first_step) + 3);
  findings.sort((a, b) => (b === foremost) - (a === foremost));
  replace(panel, head(page, run, step, told),
    ...findings.slice(0, 6).map((finding) => findingCard(finding, run, page.open)),
    happened(told), figures(told),
    el("section", { id: "panel-timeline" }, el("h3", { text: words("timeline") }), times),
    el("section", { id: "panel-documents" }, el("h3", { text: words("documents") }), recorded(told), texts, command(`stoker data show ${quoted(run.path)} --step ${step}`)));
  panel.scrollTop = 0;
  panel.querySelector("h2").focus({ preventScroll: true });
  const wait = json(`/api/run/${run.id}/timeline?step=${step}`).then((answer) => { if (shown === asked) replace(times, timeline(answer)); }, (error) => replace(times, el("p", { class: "note", text: error.message })));
  json(`/api/run/${run.id}/documents?step=${step}`).then((answer) => { if (shown === asked) replace(texts, ...documents(answer)); }, (error) => replace(texts, el("p", { class: "note", text: error.message })));
  if (section) { await wait; byId("panel-" + section)?.scrollIntoView({ block: "start" }); }
}

export function openFinding(page, run, finding) {
  if (finding.first_step !== null) { openStep(page, run, page.recordedStep(run, finding.first_step), null, finding); return; }
  shown = { run: run.id, step: null };
  byId("panel").hidden = false;
  replace(byId("panel"), head(page, run, null, null), findingCard(finding, run, page.open));
}

function head(page, run, step, told) {
  const go = (to) => () => openStep(page, run, to);
  return el("header", { class: "panel-head" },
    el("div", {}, el("h2", { tabindex: "-1", text: step === null ? run.name : `${run.name} · ${words("atStep", spelled(step, "step"))}` }),
      el("p", { class: "note", text: told ? [moment(told.figures.time), ...Object.entries(told.units).filter(([unit]) => unit !== "step").map(([unit, value]) => `${words(unit)} ${spelled(value, unit)}`)].join(" · ") : "" })),
    step === null ? null : el("button", { class: "plain", text: "‹", title: words("previous"), "aria-label": words("previous"), onclick: go(step - 1) }),
    step === null ? null : el("button", { class: "plain", text: "›", title: words("next"), "aria-label": words("next"), onclick: go(step + 1) }),
    el("button", { class: "plain", text: "✕", title: words("close"), "aria-label": words("close"), onclick: closePanel }));
}

function happened(told) {
  if (!told.events.length) return null;
  return el("section", {}, el("h3", { text: words("whatHappened") }), el("ul", { class: "happened" }, ...told.events.map((event) => el("li", {}, el("b", { text: nameOf(event.event) }), event.detail && Object.keys(event.detail).length ? ` ${JSON.stringify(event.detail).slice(0, 400)}` : ""))));
}

function figures(told) {
  const rows = [];
  const row = (name, value, usual, format, falls = false) => rows.push(el("tr", { class: stands(value, usual, falls) }, el("td", { text: name }), el("td", { class: "n", text: typeof value === "boolean" ? (value ? "✓" : "–") : spelled(value, format) }), el("td", { class: "n", text: usual === undefined ? "" : spelled(usual, format) })));
  for (const name of TOLD) if (told.figures[name] !== undefined) row(nameOf(name), told.figures[name], told.usual[name], FORMATS[name] || "number", name === "loss");
  for (const [source, value] of Object.entries(told.figures.loss_by_source || {})) row(`${nameOf("loss")} · ${source}`, value, told.usual["loss_by_source." + source], "number", true);
  for (const [part, value] of Object.entries(told.figures.loss_by_position || {})) row(`${nameOf("loss")} · ${part}`, value);
  if (told.samples[0] !== null) rows.push(el("tr", {}, el("td", { text: words("samples", spelled(told.samples[0], "step"), spelled(told.samples[1], "step")), colSpan: 3 }, told.figures.batch_digest ? el("code", { class: "digest", text: told.figures.batch_digest }) : null)));
  return el("section", {}, el("table", { class: "figure-table" }, el("thead", {}, el("tr", {}, el("th", { text: words("figure") }), el("th", { class: "n", text: words("here") }), el("th", { class: "n", text: words("usual", told.past_rows) }))), el("tbody", {}, ...rows)));
}

/* Far from the median of the steps before: set off, so that one need not compare digit by digit. A loss falls anyway. */
const stands = (value, usual, falls) => (typeof value === "number" && typeof usual === "number" && usual !== 0 && (falls ? value / usual - 1 : Math.abs(value / usual - 1)) > 0.25 ? "far" : typeof value === "string" && /NaN|Inf/.test(value) ? "far" : "");

function recorded(told) {
  if (!told.documents.length) return el("p", { class: "note", text: words("noDocuments") });
  return el("table", {}, el("thead", {}, el("tr", {}, el("th", { text: words("worst") }), el("th", { class: "n", text: words("loss") }))), el("tbody", {}, ...told.documents.slice(0, 12).map((one) =>
    el("tr", {}, el("td", { text: [one.source, words("sample", spelled(one.sample, "step")), words("rank", one.rank), one.tokens === undefined ? "" : words("tokensFrom", one.first_token ?? 0, (one.first_token ?? 0) + one.tokens)].filter(Boolean).join(" · ") }), el("td", { class: "n", text: spelled(one.loss) })))));
}

const placeIn = (position) => { const line = /^line (\d+)$/.exec(position); return line ? words("line", line[1]) : position; };

function documents(answer) {
  if (answer.missing) return [el("p", { class: "note", text: words("noText", answer.missing) })];
  const shownOnes = answer.documents.map((one) => el("details", { class: "document", open: one.loss !== null },
    el("summary", {}, el("b", { text: one.source }), ` ${one.identifier || one.file || words("sample", one.sample)} `, one.loss === null ? "" : el("span", { class: "badge warning", text: words("lossOf", spelled(one.loss)) })),
    el("p", { class: "note", text: [one.file && one.file !== one.identifier ? `${one.file}${one.position ? words("and") + placeIn(one.position) : ""}` : "", words("sample", spelled(one.sample, "step")), words("rank", one.rank), words("tokensOf", spelled(one.start, "step"), spelled(one.stop, "step"), spelled(one.document_tokens, "step")), words("epoch", one.epoch + 1)].filter(Boolean).join(" · ") }),
    el("blockquote", { text: one.excerpt, dir: "auto" })));
  return [answer.others ? el("p", { class: "banner", text: words("otherText") }) : null, ...shownOnes, answer.left_out ? el("p", { class: "note", text: words("moreDocuments", answer.left_out) }) : null];
}
