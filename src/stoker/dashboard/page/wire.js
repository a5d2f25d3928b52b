/* Asking the server. Figures come as binary columns, laid out as packing.py says. */

export class Refused extends Error {}

/* What early.js has asked for already; each answer is taken once. */
function taken(address) {
  const answer = window.early?.[address];
  delete window.early?.[address];
  return answer;
}

async function asked(address, signal) {
  const answer = await (taken(address) || fetch(address, { signal, credentials: "same-origin" }));
  if (answer.ok) return answer;
  let why = `${answer.status} ${answer.statusText}`;
  try { why = (await answer.json()).error || why; } catch { /* no JSON: the status says it */ }
  throw new Refused(why);
}

export const json = async (address, signal) => (await asked(address, signal)).json();

export async function columns(address, signal) {
  const buffer = await (await asked(address, signal)).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  let at = 4 + length;
  const found = {};
  for (const column of header.columns) {
    const wide = column.type === "f8";
    found[column.name] = wide ? new Float64Array(buffer, at, column.length) : new Float32Array(buffer, at, column.length);
    at += Math.ceil((column.length * (wide ? 8 : 4)) / 8) * 8;
  }
  return { header, found, bytes: buffer.byteLength };
}

export const query = (given) => {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) parts.append(name, one);
  }
  return parts.toString();
};

/* Every message of the server until `close` is called; the browser connects again by itself. */
export function listen(runs, heard) {
  const source = new EventSource("/api/live?" + query({ run: runs }));
  for (const name of ["run", "findings"]) source.addEventListener(name, (event) => heard(name, JSON.parse(event.data)));
  source.addEventListener("open", () => heard("open", null));
  source.addEventListener("error", () => heard("lost", null));
  return () => source.close();
}
