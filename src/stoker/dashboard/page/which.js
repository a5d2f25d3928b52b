/* What can show one run only, of several laid over each other: which one is chosen here, for all such parts alike. */
import { el, replace } from "./dom.js";
import { words } from "./words.js";

export class WhichRun {
  constructor(page) {
    this.page = page;
    this.element = el("select", { class: "which", "aria-label": words("whichRun"), onchange: () => page.choose(this.element.value) });
  }

  /* The run that is chosen; the choice is shown where there is one. */
  run() {
    const runs = this.page.runs(), chosen = this.page.single();
    replace(this.element, ...runs.map((run) => el("option", { value: run.id, text: run.name })));
    this.element.hidden = runs.length < 2;
    if (chosen) this.element.value = chosen.id;
    return chosen;
  }
}
