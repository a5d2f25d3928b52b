/* Which charts a run's page has, and of which curves; see lines.py for how curves are called. */
import { nameOf } from "./names.js";
import { saying, words } from "./words.js";

const has = (run, column, kind = "step") => (run.columns[kind] || []).includes(column);
const named = (run, field) => (run.columns.step || []).filter((column) => column.startsWith(field + ".")).map((column) => column.slice(field.length + 1));
const single = (name, label) => [{ name, label: nameOf(label), colour: 0 }];
const step = (column) => (run) => (has(run, column) ? single(`step:0:${column}`, column) : []);
const byName = (field, say = (name) => name) => (run) => inOrder(named(run, field)).map((name, i) => ({ name: `step:0:${field}.${name}`, label: say(name), colour: i }));
const inOrder = (names) => [...names].sort((a, b) => a.localeCompare(b, "en", { numeric: true })); // a source has one colour everywhere
const byModule = (column, kind = "module", wanted = null) => (run) => (has(run, column, kind)
  ? inOrder(run.keys[kind] || []).filter((key) => !wanted || wanted(key)).map((key, i) => ({ name: `${kind}:0:${column}:${key}`, label: key, colour: i })) : []);
const byRank = (column, kind = "step") => (run) => (kind === "machine" ? run.machine : has(run, column) ? run.rank_numbers : []).slice(0, 64)
  .map((rank, i) => ({ name: `${kind}:${rank}:${column}`, label: words("rank", rank), colour: i }));
const derived = (column) => (run) => (has(run, "time") ? single(`derived:0:${column}`, column) : []);
const ORDER = ["data", "forward", "backward", "communication", "optimizer", "telemetry", "copies", "checkpoint", "evaluation"];
const phases = (run) => named(run, "seconds").filter((name) => name !== "total")
  .sort((a, b) => (ORDER.indexOf(a) + 99) % 99 - (ORDER.indexOf(b) + 99) % 99)
  .map((name, i) => ({ name: `step:0:seconds.${name}`, label: nameOf(name), colour: i }));
const because = (what, why) => () => words("none", nameOf(what), words(why));
const chart = (id, lines, more = {}) => ({ id, lines, title: () => nameOf(more.name || id), empty: because(more.name || id, more.why || "why_old"), ...more });
const machine = (column, format, more = {}) => chart("machine-" + column, byRank(column, "machine"), { name: column, format, why: "why_platform", ...more });

export const SECTIONS = [
  { id: "quality", charts: [
    chart("loss", step("loss"), { main: true, empty: () => words("empty_quality") }),
    chart("loss_by_source", byName("loss_by_source")),
    chart("held_out", byModule("loss", "evaluation"), { points: true, why: "why_evaluation" }),
    chart("loss_by_position", byName("loss_by_position")),
  ] },
  { id: "optimisation", charts: [
    chart("learning_rate", step("learning_rate"), { floor: 0, linear: true }),
    chart("gradient_norm", step("gradient_norm"), { limit: (run) => run?.gradient_clip }),
    chart("update_norm", step("update_norm")),
    chart("weight_norm", step("weight_norm")),
    chart("loss_scale", step("loss_scale"), { linear: true, optional: true }),
  ] },
  { id: "modules", charts: [
    chart("update_to_weight", byModule("update_to_weight"), { why: "why_every" }),
    chart("attention_logit", byModule("attention_logit"), { why: "why_every" }),
    chart("attention_entropy", byModule("attention_entropy"), { why: "why_every", linear: true }),
    chart("logit_largest", byModule("logit_largest"), { why: "why_every" }),
    chart("dead_units", byModule("dead_units"), { format: "percent", floor: 0, optional: true }),
    chart("output_rms", byModule("output_rms"), { optional: true }),
    chart("largest_load", byModule("largest_load", "routing"), { floor: 0, why: "why_dense", optional: true }),
    chart("entropy", byModule("entropy", "routing"), { why: "why_dense", optional: true }),
  ], heat: "modules" },
  { id: "speed", charts: [
    chart("tokens_per_second", derived("tokens_per_second"), { format: "rate", floor: 0 }),
    chart("phases", phases, { stack: true, format: "seconds" }),
    chart("waited", byName("waited", nameOf), { format: "seconds", floor: 0, why: "why_old", optional: true }),
    chart("read_ahead", byRank("read_ahead"), { format: "count", floor: 0, optional: true, linear: true }),
  ], heat: "ranks" },
  { id: "machine", charts: [
    chart("memory_peak_bytes", byRank("memory_peak_bytes"), { format: "bytes", linear: true }),
    chart("memory_reserved_bytes", byRank("memory_reserved_bytes"), { format: "bytes", linear: true, optional: true }),
    chart("host_memory_bytes", byRank("host_memory_bytes"), { format: "bytes", linear: true }),
    machine("utilisation", "percent", { floor: 0 }),
    machine("temperature_celsius", "celsius", { optional: true }),
    machine("power_watts", "watts", { floor: 0, optional: true }),
    machine("clock_hertz", "hertz", { optional: true }),
    machine("processor_share", "percent", { floor: 0, optional: true }),
    machine("network_latency_seconds", "seconds", { floor: 0, optional: true }),
  ] },
];

/* What heat maps can show: [measure as the server calls it, name, format]. */
export const rankMeasures = (run) => [
  ["step:seconds.total", nameOf("step_seconds"), "seconds"],
  ...(has(run, "work_seconds") ? [["step:work_seconds", nameOf("work_seconds"), "seconds"]] : []),
  ...(named(run, "waited").length ? [["derived:waited", nameOf("waited"), "seconds"]] : []),
  ...named(run, "waited").map((name) => [`step:waited.${name}`, saying(nameOf("waited"), nameOf(name)), "seconds"]),
  ...phases(run).map((line) => [line.name.replace("step:0:", "step:"), line.label, "seconds"]),
  ...(has(run, "memory_peak_bytes") ? [["step:memory_peak_bytes", nameOf("memory_peak_bytes"), "bytes"]] : []),
  ...(has(run, "host_memory_bytes") ? [["step:host_memory_bytes", nameOf("host_memory_bytes"), "bytes"]] : []),
];

const MODULE_FIGURES = ["update_to_weight", "gradient_norm", "gradient_rms", "weight_rms", "update_rms", "output_rms", "output_largest", "attention_logit", "attention_entropy", "dead_units"];
export const moduleMeasures = (run) => [
  ...MODULE_FIGURES.filter((name) => has(run, name, "module")).map((name) => [`module:${name}`, nameOf(name), "number"]),
  ...(named(run, "gradient_norm_by_module").length ? [["step:gradient_norm_by_module", nameOf("gradient_norm_by_module"), "number"]] : []),
  ...["largest_load", "smallest_load", "entropy"].filter((name) => has(run, name, "routing")).map((name) => [`routing:${name}`, nameOf(name), "number"]),
];

/* Charts that none of the runs has curves for are left out where that needs no explanation. */
export const wanted = (spec, runs) => !spec.optional || runs.some((run) => spec.lines(run).length);
