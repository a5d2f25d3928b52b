/* The list of runs: which there are, how they stand, which to look at together. */
import { byId, el, replace } from "./dom.js";
import { ago, spelled } from "./format.js";
import { addressOf } from "./view.js";
import { json } from "./wire.js";
import { saying, words } from "./words.js";

const EVERY = 5000;

export class RunList {
  constructor() {
    this.chosen = new Set();
    this.filter = el("input", { type: "search", id: "filter", placeholder: words("filter"), "aria-label": words("filter"), oninput: () => this.draw() });
    this.overlay = el("a", { class: "plain", text: words("overlay"), href: "#/" });
    this.body = el("tbody");
    this.count = el("span", { class: "note" });
    this.rows = [];
  }

  async show(first = null) {
    const columns = ["", "name", "state", "step", "loss", "rate", "findings", "updated", "folder"];
    replace(byId("side"));
    replace(byId("main"), el("section", {}, el("div", { class: "bar" }, el("h1", { text: words("runs") }), this.count, this.filter, this.overlay),
      el("div", { class: "card table" }, el("table", { class: "runs" }, el("thead", {}, el("tr", {}, ...columns.map((name) => el("th", { class: ["step", "loss", "rate", "updated"].includes(name) ? "n" : "", text: name ? words(name) : "" })))), this.body))));
    document.title = `${words("runs")} · Stoker`;
    if (first) { this.rows = first; this.draw(); } else await this.fetch();
    this.timer = setInterval(() => { if (!document.hidden) this.fetch(); }, EVERY);
  }

  close() { clearInterval(this.timer); }

  async fetch() {
    try {
      this.rows = (await json("/api/runs")).runs;
      this.draw();
    } catch (error) {
      replace(this.body, el("tr", {}, el("td", { colSpan: 9, text: error.message })));
    }
  }

  draw() {
    const sought = this.filter.value.trim().toLowerCase().split(/\s+/);
    const rows = this.rows.filter((row) => sought.every((one) => `${row.name} ${row.path} ${row.state} ${words(row.state)}`.toLowerCase().includes(one)));
    this.count.textContent = rows.length === this.rows.length ? `${rows.length}` : `${rows.length} / ${this.rows.length}`;
    replace(this.body, ...(rows.length ? rows.map((row) => this.row(row)) : [el("tr", {}, el("td", { colSpan: 9, class: "nothing", text: words("noRuns") }))]));
    this.overlay.href = addressOf([...this.chosen]);
    this.overlay.classList.toggle("off", this.chosen.size < 2);
  }

  row(row) {
    const done = row.planned ? Math.min(1, (row.step || 0) / row.planned) : 0, bar = el("i");
    bar.style.width = 100 * done + "%";
    const counts = ["alarm", "warning", "note"].filter((name) => row.findings[name]).map((name) => el("span", { class: "badge " + name, text: row.findings[name], title: words(name) }));
    const box = el("input", { type: "checkbox", checked: this.chosen.has(row.id), "aria-label": saying(words("overlay"), row.name), onchange: () => { if (!this.chosen.delete(row.id)) this.chosen.add(row.id); this.draw(); } });
    return el("tr", {}, el("td", {}, box), el("td", {}, el("a", { class: "name", href: `#/run/${row.id}`, text: row.name })), el("td", {}, el("span", { class: "state " + row.state, text: words(row.state) })),
      el("td", { class: "n" }, `${spelled(row.step, "step")}${row.planned ? " / " + spelled(row.planned, "step") : ""}`, el("span", { class: "done" }, bar)),
      el("td", { class: "n", text: spelled(row.loss) }), el("td", { class: "n", text: spelled(row.tokens_per_second, "rate", 3) }), el("td", {}, ...counts),
      el("td", { class: "n", text: ago(row.time) }), el("td", { class: "path", text: row.path, title: row.path }));
  }
}
