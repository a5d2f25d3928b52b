/* The bar of controls: axis, smoothing, logarithms, runs. */
import { el, later, lineColour } from "./dom.js";
import { addressOf, changeView, onView, view } from "./view.js";
import { json } from "./wire.js";
import { saying, words } from "./words.js";

export function toolbar(page) {
  const runs = page.runs(), units = ["step", "tokens", "hours", "flops"].filter((unit) => runs.some((run) => run.units.includes(unit)));
  const reset = el("button", { class: "plain", text: words("reset"), hidden: !view.zoom, onclick: () => page.resetZoom() });
  onView(() => { reset.hidden = !view.zoom; });
  const axis = el("div", { class: "switch", role: "group", "aria-label": words("axis") }, ...units.map((unit) => el("button", { class: view.unit === unit ? "on" : "", "aria-pressed": String(view.unit === unit), text: words(unit), onclick: (event) => {
    axis.querySelectorAll("button").forEach((one) => { one.className = one === event.target ? "on" : ""; one.setAttribute("aria-pressed", String(one === event.target)); });
    changeView({ unit, zoom: null });
  } })));
  const smoothing = el("input", { type: "range", min: "0", max: "1", step: "0.05", value: String(view.smoothing), "aria-label": words("smoothing"), oninput: later(() => changeView({ smoothing: Number(smoothing.value) }, "look"), 30) });
  const check = (name) => el("label", { class: "control" }, el("input", { type: "checkbox", checked: view[name], onchange: (event) => changeView({ [name]: event.target.checked }, "look") }), words(name));
  const chips = runs.length > 1 ? runs.map((run) => {
    const key = el("i");
    key.style.background = lineColour(run.colour);
    return el("span", { class: "chip" }, key, el("span", { text: run.name }), el("button", { text: "✕", "aria-label": saying(words("remove"), run.name), onclick: () => { location.hash = addressOf(view.runs.filter((id) => id !== run.id)); } }));
  }) : [];
  const add = el("select", { class: "add", "aria-label": words("add"), onchange: () => { if (add.value) location.hash = addressOf([...view.runs, add.value]); } }, el("option", { value: "", text: words("add") }));
  json("/api/runs").then(({ runs: all }) => {
    const others = all.filter((run) => !view.runs.includes(run.id));
    add.append(...others.map((run) => el("option", { value: run.id, text: run.name })));
    add.hidden = !others.length;
  }).catch(() => { add.hidden = true; });
  return el("div", { class: "toolbar" }, axis, el("label", { class: "control" }, words("smoothing"), smoothing), check("log"), check("logX"), check("clip"), reset, el("span", { class: "space" }), ...chips, add);
}
