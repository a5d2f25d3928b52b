/* What is not the same in two runs, and what became of the documents of one. */
import { el, replace } from "./dom.js";
import { spelled } from "./format.js";
import { nameOf } from "./names.js";
import { WhichRun } from "./which.js";
import { json, query } from "./wire.js";
import { saying, words } from "./words.js";

export class Difference {
  constructor(page) {
    this.page = page;
    this.element = el("div", { class: "card wide" });
  }

  close() {}

  async show() {
    const runs = this.page.runs();
    if (runs.length !== 2) { replace(this.element, el("p", { class: "nothing", text: words("chooseTwo") })); return; }
    try {
      this.draw(runs, await json("/api/compare?" + query({ run: runs.map((run) => run.id) })));
    } catch (error) {
      replace(this.element, el("p", { class: "nothing", text: error.message }));
    }
  }

  draw(runs, told) {
    const heads = (first) => el("thead", {}, el("tr", {}, el("th", { text: first }), ...runs.map((run) => el("th", { text: run.name }))));
    const measures = told.measures.map((one) => el("tr", {}, el("td", { text: nameOf(one.measure) }),
      el("td", {}, one.first_step === null ? words("never") : el("button", { class: "link", text: words("atStep", spelled(one.first_step, "step")), onclick: () => this.page.open(runs[0], one.first_step) })),
      ...(one.values || ["", ""]).map((value) => el("td", { class: "n", text: value === "" ? "" : spelled(value, "number", 9) })), el("td", { class: "n", text: one.first_step === null ? "" : words("differing", spelled(one.differing, "step")) })));
    replace(this.element,
      el("h3", { text: `${words("firstDiffers")} (${words("sharedSteps", spelled(told.steps, "step"))})` }),
      el("table", {}, el("thead", {}, el("tr", {}, el("th", { text: words("measure") }), el("th", { text: words("firstDiffers") }), ...runs.map((run) => el("th", { class: "n", text: run.name })), el("th"))), el("tbody", {}, ...measures)),
      told.recipe_missing ? el("p", { class: "note", text: words("compareMissing", told.recipe_missing) })
        : told.recipe.length ? el("table", {}, heads(words("recipeDiffers")), el("tbody", {}, ...told.recipe.map((one) => el("tr", {}, el("td", {}, el("code", { text: one.field })), el("td", { text: one.old }), el("td", { text: one.new })))))
          : el("p", { class: "note", text: words("recipeSame") }));
  }
}

export class Funnel {
  constructor(page) {
    this.which = new WhichRun(page);
    this.element = el("div", { class: "card wide" });
  }

  close() {}

  async show() {
    const run = this.which.run(), title = el("div", { class: "titled" }, el("h3", { text: words("funnel") }), this.which.element);
    const { rows } = await json(`/api/run/${run.id}/funnel`).catch(() => ({ rows: [] }));
    if (run !== this.which.run()) return; // another has been chosen meanwhile
    if (!rows.length) { replace(this.element, title, el("p", { class: "nothing", text: words("none", words("funnel"), words("why_corpus")) })); return; }
    const sources = [...new Set(rows.map((row) => row.source))];
    replace(this.element, title, ...sources.map((source, i) => this.source(source, rows.filter((row) => row.source === source), i === 0 && sources.length < 3)));
  }

  source(source, rows, open) {
    const read = rows.find((row) => row.stage === "read")?.documents || 0, kept = rows.find((row) => row.stage === "kept")?.documents || 0;
    const bar = (row) => { const filled = el("i", { class: row.stage }); filled.style.width = read ? (100 * row.documents) / read + "%" : "0"; return el("span", { class: "share" }, filled); };
    const strip = bar({ stage: "kept", documents: kept });
    const shown = rows.filter((row) => row.stage !== "read" && row.documents).sort((a, b) => (a.stage === "kept") - (b.stage === "kept"));
    return el("details", { open }, el("summary", {}, el("b", { text: source }), ` ${spelled(read, "step")} → ${spelled(kept, "step")} ${words("kept")} (${spelled(read ? kept / read : null, "percent", 3)}) `, strip),
      el("table", { class: "funnel" }, el("tbody", {}, ...shown.map((row) => el("tr", {}, el("td", { text: row.reason ? saying(nameOf(row.stage), nameOf(row.reason)) : nameOf(row.stage) }), el("td", { class: "n", text: spelled(row.documents, "step") }), el("td", { class: "n", text: spelled(row.bytes, "bytes", 3) }), el("td", {}, bar(row)))))));
  }
}
