/* Where everything begins: the address says what is shown. */
import { byId, el, replace } from "./dom.js";
import { RunList } from "./list.js";
import { closePanel, isOpen } from "./panel.js";
import { RunPage } from "./run.js";
import { addressOf, changeView, readAddress, view } from "./view.js";
import { json } from "./wire.js";
import { isChinese, switchLanguage, words } from "./words.js";

let shown = null;

function dark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function switchTheme() {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  try { localStorage.setItem("stoker-theme", document.documentElement.dataset.theme); } catch { /* not kept then */ }
  head();
  changeView({}, "look");
}

function head() {
  document.querySelector(".skip").textContent = words("skip");
  replace(byId("top"), el("a", { class: "brand", href: "#/" }, el("img", { src: new URL("icon.svg", import.meta.url).pathname, alt: "", width: 20, height: 20 }), "Stoker"),
    el("a", { class: "crumb", href: "#/", text: words("runs") }), el("span", { class: "space" }), el("span", { id: "link", class: "link-state", text: "" }),
    el("button", { class: "plain", text: words("language"), lang: isChinese() ? "en" : "zh-CN", onclick: () => { switchLanguage(); head(); show(); } }),
    el("button", { class: "plain", text: words(dark() ? "light" : "dark"), onclick: switchTheme }));
}

async function show() {
  shown?.close();
  const runs = readAddress();
  let page = runs.length ? new RunPage(runs) : new RunList();
  let all = null;
  if (!runs.length && !show.before) { // A single run needs no list.
    ({ runs: all } = await json("/api/runs").catch(() => ({ runs: [] })));
    if (all.length === 1) { view.runs = [all[0].id]; history.replaceState(null, "", addressOf(view.runs)); page = new RunPage(view.runs); }
  }
  show.before = true;
  shown = page;
  await page.show(all);
  document.body.dataset.ready = "yes";
}

addEventListener("hashchange", () => {
  const runs = view.runs.join();
  readAddress();
  if (runs === view.runs.join() && runs) { changeView({}); return; }
  scrollTo(0, 0);
  show();
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && isOpen()) closePanel();
  if (event.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName) && byId("filter")) { event.preventDefault(); byId("filter").focus(); }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { head(); changeView({}, "look"); });
head();
show();
