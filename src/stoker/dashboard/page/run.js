/* The page of one run, or of several laid over each other. */
import { SECTIONS, moduleMeasures, rankMeasures, wanted } from "./catalogue.js";
import { Chart } from "./chart.js";
import { Difference, Funnel } from "./compare.js";
import { byId, el, replace, say } from "./dom.js";
import { findingCard, gravity, titleOf } from "./findings.js";
import { ago, moment, spelled } from "./format.js";
import { HeatMap } from "./heat.js";
import { Lanes } from "./lanes.js";
import { inLanguage, nameOf } from "./names.js";
import { closePanel, openFinding, openStep } from "./panel.js";
import { toolbar } from "./toolbar.js";
import { changeView, onView, view } from "./view.js";
import { json, listen, query } from "./wire.js";
import { saying, words } from "./words.js";

const SLOWEST = 5000;
const MOST_CARDS = 40;

export class RunPage {
  constructor(ids) {
    this.ids = ids;
    this.facts = new Map();
    this.happenings = new Map();
    this.opinions = new Map();
    this.parts = [];
    this.unfolded = new Set(); // runs whose findings are shown to the last
    this.gap = 1000;
    this.last = 0;
    this.open = (run, step, section) => openStep(this, run, step, section);
  }

  /* Runs that share a name are told apart by their folders. */
  runs() {
    const runs = this.ids.map((id) => this.facts.get(id)).filter(Boolean);
    for (const run of runs) {
      run.given ??= run.name;
      run.name = runs.some((other) => other !== run && (other.given ?? other.name) === run.given) ? `${run.given} · ${run.path.split("/").filter(Boolean).pop()}` : run.given;
    }
    return runs;
  }
  /* Of what can show one run only. */
  single() { return this.facts.get(this.only) || this.runs()[0]; }
  choose(id) {
    this.only = id;
    this.parts.forEach((part) => part.changed?.("run"));
    this.funnel.show();
  }
  findings(id) { return this.opinions.get(id)?.findings || []; }
  happened(id) { return this.happenings.get(id) || {}; }
  title(finding) { return saying(words(finding.severity), titleOf(finding)); }
  finding(run, finding) { openFinding(this, run, finding); }

  /* Where a step stands on the axis: events and findings come with their places, others lie between. */
  placeOf(id, step) {
    if (view.unit === "step") return step;
    const places = this.happened(id).places?.[view.unit];
    if (places && String(step) in places) return places[String(step)];
    const curve = this.loss?.lines.find((line) => line.run.id === id), facts = this.facts.get(id);
    if (!curve || !facts?.step || !this.loss.span) return null;
    return (step / facts.step) * curve.x[curve.x.length - 1];
  }

  stepsOf(id, [from, to]) {
    const facts = this.facts.get(id), last = this.loss?.span?.[1];
    return facts?.step && last ? [(from / last) * facts.step, (to / last) * facts.step] : null;
  }

  recordedStep(run, step) { return Math.max(1, Math.min(step, run.step || step)); }

  async near(run, at, reach, name, unit = view.unit, section = null) {
    try {
      const { step } = await json(`/api/run/${run.id}/near?` + query({ at, reach, unit, line: name }));
      if (step !== null) await this.open(run, step, section);
    } catch (error) { say(error.message); }
  }

  async show() {
    await Promise.all(this.ids.map((id) => this.load(id)));
    if (!this.runs().length) { location.hash = "#/"; return; }
    document.title = `${this.runs().map((run) => run.name).join(" · ")} · Stoker`;
    this.build();
    this.stopView = onView((what) => this.parts.forEach((part) => part.changed?.(what)));
    this.loss.first.then(() => { if (!this.closed) this.stopLive = listen(this.ids, (name, told) => this.heard(name, told)); });
    this.onShow = () => { if (!document.hidden && this.missed) this.renew(this.missed); };
    document.addEventListener("visibilitychange", this.onShow);
    // The curve first; what happened and what stands out join it.
    await Promise.race([this.loss.first, new Promise((done) => setTimeout(done, 4000))]);
    await Promise.all(this.runs().map((run) => this.ask(run.id)));
    this.tell();
  }

  close() {
    this.closed = true;
    this.stopView?.();
    this.stopLive?.();
    document.removeEventListener("visibilitychange", this.onShow);
    this.parts.forEach((part) => part.close());
    closePanel();
  }

  async load(id) {
    try {
      const facts = await json(`/api/run/${id}`);
      this.facts.set(id, { ...facts, place: this.ids.indexOf(id), colour: this.ids.indexOf(id) });
    } catch (error) { say(error.message); }
  }

  async ask(id) {
    const [happened, opinion] = await Promise.all([json(`/api/run/${id}/events`).catch(() => ({})), json(`/api/run/${id}/findings`).catch(() => ({}))]);
    this.happenings.set(id, happened);
    this.opinions.set(id, opinion);
  }

  build() {
    const runs = this.runs(), main = byId("main");
    this.parts.forEach((part) => part.close());
    this.parts = [];
    this.banner = el("div");
    this.figures = el("div", { class: "figures" });
    this.found = el("section", { id: "findings" });
    const sections = SECTIONS.map((section) => this.section(section, runs));
    this.difference = new Difference(this);
    this.funnel = new Funnel(this);
    this.told = el("div", { class: "card wide table" });
    replace(main, toolbar(this), this.banner, el("section", { id: "overview" }, this.figures), ...sections.slice(0, 1), this.found, ...sections.slice(1),
      el("section", { id: "data" }, el("h2", { text: words("data") }), this.funnel.element),
      el("section", { id: "difference" }, el("h2", { text: words("difference") }), this.difference.element),
      el("section", { id: "events" }, el("h2", { text: words("events") }), this.told));
    const named = ["overview", "quality", "findings", "optimisation", "modules", "speed", "machine", "data", "difference", "events"];
    replace(byId("side"), ...named.map((id) => el("a", { href: "#" + id, text: words(id), onclick: (event) => { event.preventDefault(); byId(id).scrollIntoView(); } })),
      el("dl", { class: "keys" }, ...words("keys").flatMap(([key, does]) => [el("dt", { text: key }), el("dd", { text: does })])));
    this.funnel.show();
    this.difference.show();
    this.tell();
  }

  section(section, runs) {
    const grid = el("div", { class: "grid" });
    for (const spec of section.charts.filter((one) => wanted(one, runs))) {
      const chart = new Chart(spec, this);
      this.parts.push(chart);
      if (spec.main) {
        this.loss = chart;
        const lanes = new Lanes(this, chart);
        this.lanes = lanes;
        chart.plot.after(lanes.element);
        this.parts.push({ close: () => lanes.close() });
      }
      grid.append(chart.element);
    }
    if (section.heat) {
      const heat = new HeatMap(section.heat, this, section.heat === "ranks" ? rankMeasures : moduleMeasures);
      this.parts.push(heat);
      grid.append(heat.element);
    }
    return el("section", { id: section.id }, el("h2", { text: words(section.id) }), grid);
  }

  /* Figures, findings and events as they are known now. */
  tell() {
    const runs = this.runs();
    replace(this.figures, ...runs.map((run) => headline(run)));
    const gaps = runs.flatMap((run) => [...run.missing.map((gap) => words("gap_" + gap.kind, gap)), run.redone ? words("redone", spelled(run.redone, "step")) : ""].filter(Boolean).map((text) => (runs.length > 1 ? saying(run.name, text) : text)));
    replace(this.banner, gaps.length ? el("p", { class: "banner", text: gaps.join(" · ") }) : null);
    const cards = runs.flatMap((run) => {
      const opinion = this.opinions.get(run.id) || { state: "waiting", findings: [] };
      const text = { waiting: words("waiting"), failed: words("diagnosisFailed", opinion.why) }[opinion.state] || (opinion.findings.length ? "" : words("nothingFound"));
      return [runs.length > 1 ? el("h3", { text: run.name }) : null, text ? el("p", { class: "nothing", text }) : null, ...this.cards(run, opinion.findings || [])];
    });
    replace(this.found, el("h2", { text: words("findings") }), el("div", { class: "finding-list" }, ...cards.filter(Boolean)));
    this.tellEvents(runs);
    this.loss?.pins();
    this.lanes?.drawSoon();
  }

  /* Of very many findings the gravest, until all are asked for. */
  cards(run, findings) {
    const many = findings.length > MOST_CARDS && !this.unfolded.has(run.id);
    const shown = many ? findings.toSorted((a, b) => gravity(a) - gravity(b)).slice(0, MOST_CARDS) : findings;
    return [...shown.map((finding) => findingCard(finding, run, this.open)),
      many ? el("button", { class: "plain more", text: words("moreFindings", findings.length - MOST_CARDS), onclick: () => { this.unfolded.add(run.id); this.tell(); } }) : null];
  }

  tellEvents(runs) {
    const rows = runs.flatMap((run) => (this.happened(run.id).events || []).map((event) => ({ run, event }))).sort((a, b) => (b.event.time || 0) - (a.event.time || 0)).slice(0, 300);
    const left = runs.reduce((sum, run) => sum + (this.happened(run.id).left_out || 0), 0);
    replace(this.told, rows.length ? el("table", {}, el("tbody", {}, ...rows.map(({ run, event }) => el("tr", {}, el("td", { class: "when", text: moment(event.time) }), runs.length > 1 ? el("td", { text: run.name }) : null,
      el("td", { class: "n" }, Number.isInteger(event.step) && event.step > 0 ? el("button", { class: "link", text: spelled(event.step, "step"), onclick: () => this.open(run, event.step) }) : ""), el("td", { text: nameOf(event.event) }), el("td", { text: inLanguage(event) }))))) : el("p", { class: "nothing", text: words("noEvents") }),
    left ? el("p", { class: "note", text: words("leftOut", left) }) : null);
  }

  heard(name, told) {
    const chip = byId("link");
    if (chip && (name === "open" || name === "lost")) { chip.textContent = words(name === "open" ? "connected" : "lost"); chip.className = "link-state " + name; }
    if (name === "findings") this.ask(told.id).then(() => this.tell());
    if (name === "run" && this.facts.has(told.id) && this.facts.get(told.id).version !== told.version) this.renew(told);
  }

  /* What is new is fetched as often as it comes, but never more than the page can draw. */
  renew(told) {
    if (document.hidden) { this.missed = told; return; }
    this.missed = null;
    const early = this.last + this.gap - performance.now();
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      const begun = (this.last = performance.now()), before = this.facts.get(told.id), columns = JSON.stringify(before?.columns);
      await this.load(told.id);
      const after = this.facts.get(told.id), follows = !view.zoom || !this.loss?.span || view.zoom[1] >= this.loss.span[1];
      if (JSON.stringify(after.columns) !== columns || JSON.stringify(after.keys) !== JSON.stringify(before.keys)) this.build();
      else if (follows) this.parts.forEach((part) => part.changed?.("rows"));
      await this.ask(told.id);
      this.tell();
      this.gap = Math.min(SLOWEST, Math.max(1000, 4 * (performance.now() - begun)));
    }, Math.max(0, early));
  }

  resetZoom() { changeView({ zoom: null }, "zoom"); }
}

function headline(run) {
  const left = run.state === "running" && run.planned && run.step_seconds ? (run.planned - run.step) * run.step_seconds : null;
  const figure = (name, value, small = "") => el("div", { class: "figure" }, el("span", { text: name }), el("b", { text: value }), el("small", { text: small }));
  return el("div", { class: "headline" },
    el("div", { class: "figure run-name" }, el("span", { class: "state " + run.state, text: words(run.state) }), el("b", { text: run.name }), el("small", { text: run.path, title: run.path })),
    figure(words("step"), spelled(run.step, "step"), run.planned ? "/ " + spelled(run.planned, "step") : ""), figure(words("loss"), spelled(run.loss)), figure(words("tokensSeen"), spelled(run.tokens_seen, "count", 3), run.parameters ? words("parameters", spelled(run.parameters, "count", 3)) : ""),
    figure(words("rate"), spelled(run.tokens_per_second, "rate", 3), run.step_seconds ? `${spelled(run.step_seconds, "seconds", 3)} / ${words("step").toLowerCase()}` : ""), figure(words("ranks"), spelled(run.ranks)), left === null ? figure(words("updated"), ago(run.time), moment(run.time)) : figure(words("left"), spelled(left, "seconds", 3)));
}

