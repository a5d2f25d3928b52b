/* A finding in words: what, when, the evidence, the causes that were weighed, what to do. */
import { el, say } from "./dom.js";
import { spelled } from "./format.js";
import { nameOf } from "./names.js";
import { isChinese, listed, saying, words } from "./words.js";

const exact = (step) => spelled(step, "step");

export function titleOf(finding) {
  return finding.cause && finding.cause !== "unknown" ? saying(nameOf(finding.kind), nameOf(finding.cause)) : nameOf(finding.kind);
}

/* The gravest come first. */
export const gravity = (finding) => ["alarm", "warning", "note"].indexOf(finding.severity);

export function whenOf(finding) {
  if (finding.first_step === null) return words("not_started");
  return words("steps", exact(finding.first_step), exact(finding.last_step ?? finding.first_step));
}

/* Stretches of samples in order, those that meet as one. */
const STRETCHES = 8;
function merged(stretches) {
  const found = [];
  for (const [first, last] of [...stretches].sort((a, b) => a[0] - b[0])) {
    const before = found[found.length - 1];
    if (before && first <= before[1] + 1) before[1] = Math.max(before[1], last);
    else found.push([first, last]);
  }
  return found;
}

function whereOf(finding) {
  const parts = [];
  if (finding.ranks?.length) parts.push(listed(finding.ranks.map((rank) => words("rank", rank))));
  if (finding.part) parts.push(nameOf(finding.part));
  if (finding.sources?.length) parts.push(listed(finding.sources));
  const stretches = merged(finding.documents || []);
  for (const [first, last] of stretches.slice(0, STRETCHES)) parts.push(words("samples", exact(first), exact(last)));
  if (stretches.length > STRETCHES) parts.push(`… (${stretches.length})`);
  if (finding.names?.length) parts.push(listed([...finding.names.slice(0, 6), ...(finding.names.length > 6 ? [`… (${finding.names.length})`] : [])]));
  return parts.join(" · ");
}

/* What the server says in both languages. */
const inTongue = (finding) => (isChinese() ? finding.chinese : null) || finding;
const meaning = (finding, cause) => inTongue(finding).meanings?.[cause] || null;
const inWords = (finding, text) => (isChinese() && finding.chinese?.words[text]) || text;

const formatOf = (measure) => (/\bbytes\b/.test(measure) ? "bytes" : /\bseconds\b/.test(measure) ? "seconds" : "number");
function sentence(finding, one) {
  const at = one.step === null ? "" : exact(one.step), format = formatOf(one.measure);
  if (one.measure === "what happened") return at ? saying(words("atStep", at), one.observed) : one.observed;
  const value = (given) => (given === null ? "" : typeof given === "string" ? inWords(finding, given) : spelled(given, format));
  return words("observed", inWords(finding, one.measure), value(one.observed) || spelled(null), value(one.expected), at);
}

function list(finding, title, lines) {
  if (!lines?.length) return null;
  return el("div", { class: "evidence" }, el("h4", { text: title }), el("ul", {}, ...lines.map((one) => el("li", { text: sentence(finding, one) }))));
}

export function findingCard(finding, run, open) {
  const others = (finding.alternatives || []).slice(0, 4);
  const step = finding.first_step;
  return el("article", { class: "finding " + finding.severity },
    el("header", {}, el("span", { class: "badge " + finding.severity, text: words(finding.severity) }), el("h3", { text: titleOf(finding) }),
      step === null ? el("span", { class: "note", text: whenOf(finding) }) : el("button", { class: "link", text: whenOf(finding), onclick: () => open(run, step) })),
    whereOf(finding) ? el("p", { class: "note", text: whereOf(finding) }) : null,
    meaning(finding, finding.cause) ? el("p", { class: "meaning", text: meaning(finding, finding.cause) }) : null,
    list(finding, words("evidence"), finding.evidence),
    others.length ? el("details", {}, el("summary", { text: saying(words("alternatives"), listed(others.map((one) => nameOf(one.cause)))) }),
      ...others.map((one) => el("div", {}, el("h4", { text: nameOf(one.cause), title: meaning(finding, one.cause) }), list(finding, words("for"), one.speaks_for), list(finding, words("against"), one.speaks_against)))) : null,
    inTongue(finding).remedy_words ? el("p", { class: "remedy" }, el("b", { text: saying(words("remedy"), "") }), ...prose(inTongue(finding).remedy_words)) : null,
    ...commandsOf(finding, run).map(command));
}

/* What stands between backticks is code. */
const prose = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", { text: part }) : part));

/* Commands of the remedy's words, and the one that shows the documents. */
function commandsOf(finding, run) {
  const said = [...(finding.remedy_words || "").matchAll(/`(stoker [^`]+)`/g)].map(([, text]) => text.replace(/\bRUN\b/g, quoted(run.path)));
  if (finding.documents?.length && finding.first_step !== null) said.push(`stoker data show ${quoted(run.path)} --step ${finding.first_step}`);
  return [...new Set(said)];
}

export const quoted = (path) => (/^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);

export function command(text) {
  return el("div", { class: "command" }, el("code", { text }), el("button", { class: "plain", text: words("copy"), "aria-label": saying(words("copy"), text), onclick: () => copy(text) }));
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // Without https only loopback addresses have a clipboard.
    const area = document.body.appendChild(el("textarea", { value: text }));
    area.value = text;
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say(words("copied"));
}
