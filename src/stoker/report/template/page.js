"use strict";
/* The page: legends, controls, charts drawn when they come into view, and where the reader is. */

/* The legend is part of the page, not of the chart: names are text, never markup. */
Report.buildLegend = (chart) => {
  const { legend, spec } = chart;
  legend.replaceChildren();
  if (spec.kind === "heat") return;
  chart.at = document.createElement("span");
  chart.at.className = "at";
  chart.entries = spec.lines.map((line) => {
    const button = document.createElement("button"), dot = document.createElement("i"), name = document.createElement("span"), value = document.createElement("b");
    button.type = "button";
    button.title = "show or hide " + line.label;
    dot.className = "c" + (line.colour % 10);
    name.textContent = line.label;
    button.append(dot, name, value);
    button.onclick = () => {
      if (chart.hidden.has(line.label)) chart.hidden.delete(line.label); else chart.hidden.add(line.label);
      button.classList.toggle("off", chart.hidden.has(line.label));
      Report.draw(chart);
    };
    return { button, value };
  });
  legend.append(...chart.entries.map((entry) => entry.button));
  legend.previousElementSibling.append(chart.at);
};

Report.showValues = (chart, u) => {
  const { spec } = chart;
  if (!chart.entries) return;
  const format = Report.formats[spec.format || "number"], index = u.cursor.idx;
  const unit = { step: "step ", tokens: "tokens ", hours: "after " }[Report.view.unit];
  chart.at.textContent = index === null || index === undefined ? "" : unit + Report.unitFormat()(u.data[0][index]);
  chart.curves.forEach((curve, i) => {
    const entry = chart.entries[i].value;
    if (index === null || index === undefined) { entry.textContent = ""; return; }
    if (spec.kind === "stack") { entry.textContent = format(curve.raw[index] || 0); return; }
    const raw = u.data[2 * i + 1][index], smooth = curve.smooth ? u.data[2 * i + 2][index] : null;
    const known = (v) => v !== null && v !== undefined;
    // One curve has room for both values; of several, the one that is drawn in front is named.
    if (spec.lines.length === 1) entry.textContent = (known(raw) ? format(raw) : "") + (known(smooth) ? "  ≈ " + format(smooth) : "");
    else entry.textContent = known(smooth) ? format(smooth) : known(raw) ? format(raw) : "";
  });
};

Report.redraw = () => Report.charts.filter((chart) => chart.drawn).forEach(Report.draw);

Report.setUpCharts = () => {
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const chart = Report.charts.find((one) => one.element === entry.target);
      if (!entry.isIntersecting || chart.drawn) continue;
      chart.drawn = true;
      Report.draw(chart);
    }
  }, { rootMargin: "400px" });
  for (const element of document.querySelectorAll("[data-chart]")) {
    const spec = Report.payload.charts[element.dataset.chart];
    if (!spec) continue;
    const chart = { element, spec, legend: element.previousElementSibling, hidden: new Set(), drawn: false, u: null };
    Report.charts.push(chart);
    Report.buildLegend(chart);
    watcher.observe(element);
  }
  const main = document.querySelector("main");
  let waiting = 0, width = main.clientWidth;
  new ResizeObserver(() => {
    if (main.clientWidth === width) return;
    width = main.clientWidth;
    clearTimeout(waiting);
    waiting = setTimeout(Report.redraw, 120);
  }).observe(main);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", Report.redraw);
  addEventListener("beforeprint", () => Report.charts.forEach((chart) => { if (!chart.drawn) { chart.drawn = true; Report.draw(chart); } }));
};

Report.setUpControls = () => {
  const { view } = Report, by = (id) => document.getElementById(id);
  by("toolbar").hidden = Report.charts.length === 0;
  const axes = Object.values(Report.payload.axes);
  for (const button of by("axis").children) {
    button.disabled = !axes.every((axis) => button.dataset.axis in axis);
    button.onclick = () => {
      view.unit = button.dataset.axis;
      view.zoom = null;
      by("reset").hidden = true;
      for (const other of by("axis").children) other.classList.toggle("on", other === button);
      Report.redraw();
    };
  }
  const smoothing = by("smoothing");
  const spell = () => { by("smoothing-value").textContent = view.smoothing > 0 ? "± " + Report.trimmed(Report.reach(100).toPrecision(2)) + "% of run" : "off"; };
  smoothing.oninput = () => { view.smoothing = smoothing.value / 100; spell(); Report.charts.filter((c) => c.drawn && c.spec.smooth).forEach(Report.draw); };
  spell();
  for (const [id, key] of [["log", "log"], ["outliers", "clip"]]) {
    by(id).onclick = () => { view[key] = !view[key]; by(id).classList.toggle("on", view[key]); Report.redraw(); };
  }
  by("reset").onclick = () => Report.setZoom(null, null);
  for (const button of document.querySelectorAll(".copy")) {
    button.onclick = () => navigator.clipboard.writeText(button.nextElementSibling.textContent).then(() => { button.textContent = "copied"; });
  }
};

Report.setUpNavigation = () => {
  const links = new Map([...document.querySelectorAll(".side a")].map((link) => [link.hash.slice(1), link]));
  const sections = [...links.keys()].map((id) => document.getElementById(id)).filter(Boolean);
  const mark = () => {
    let here = sections[0];
    for (const section of sections) if (section.getBoundingClientRect().top <= 120) here = section;
    if (innerHeight + scrollY >= document.documentElement.scrollHeight - 4) here = sections[sections.length - 1];
    links.forEach((link, id) => link.classList.toggle("here", id === here?.id));
  };
  addEventListener("scroll", mark, { passive: true });
  mark();
};

Report.setUpCharts();
Report.setUpControls();
Report.setUpNavigation();
