/* What all charts show alike: axis, stretch, smoothing. Kept in the address, so that a link shows the same picture. */

export const view = {
  runs: [],
  unit: "step",
  zoom: null,
  smoothing: 0.5,
  log: false,
  logX: false,
  clip: true,
};

const heard = new Set();
export const onView = (act) => { heard.add(act); return () => heard.delete(act); };

/* `what` says what changed: "zoom" needs no new charts, anything else does. */
export function changeView(changes, what = "all") {
  Object.assign(view, changes);
  keep();
  for (const act of heard) act(what);
}

let waiting = 0;
function keep() {
  clearTimeout(waiting);
  waiting = setTimeout(() => history.replaceState(null, "", addressOf(view.runs)), 150);
}

export function addressOf(runs) {
  if (!runs.length) return "#/";
  const parts = new URLSearchParams();
  if (view.unit !== "step") parts.set("x", view.unit);
  if (view.smoothing !== 0.5) parts.set("smooth", view.smoothing);
  if (view.log) parts.set("log", 1);
  if (view.logX) parts.set("logx", 1);
  if (!view.clip) parts.set("clip", 0);
  if (view.zoom) parts.set("zoom", view.zoom.map((value) => Number(value.toPrecision(10))).join("~"));
  const text = parts.toString();
  return `#/run/${runs.join(",")}${text ? "?" + text : ""}`;
}

export function readAddress() {
  const [, path, search] = /^#\/?([^?]*)\??(.*)$/.exec(location.hash || "#/") || [];
  const runs = (path || "").startsWith("run/") ? path.slice(4).split(",").filter((id) => /^[0-9a-f]{12}$/.test(id)) : [];
  const parts = new URLSearchParams(search || "");
  const zoom = (parts.get("zoom") || "").split("~").map(Number);
  Object.assign(view, {
    runs: [...new Set(runs)].slice(0, 12),
    unit: ["step", "tokens", "hours", "flops"].includes(parts.get("x")) ? parts.get("x") : "step",
    smoothing: parts.has("smooth") && Number.isFinite(Number(parts.get("smooth"))) ? Math.min(1, Math.max(0, Number(parts.get("smooth")))) : 0.5,
    log: parts.get("log") === "1",
    logX: parts.get("logx") === "1",
    clip: parts.get("clip") !== "0",
    zoom: zoom.length === 2 && zoom.every(Number.isFinite) && zoom[1] > zoom[0] ? zoom : null,
  });
  return view.runs;
}
