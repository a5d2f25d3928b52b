/* Elements are made here and nowhere from text: what a record says is shown as it stands and never run. */

export const byId = (id) => document.getElementById(id);

/* Marks that turn around or hide what follows stand as \u202e: a name is not to look like another. */
const upright = (value) => String(value).replace(/[\u202a-\u202e\u2066-\u2069]/g, (mark) => "\\u" + mark.charCodeAt(0).toString(16));

/* el("button", { class: "plain", text: "…", title: "…", onclick: f }, child, …) */
export function el(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") element.textContent = upright(value);
    else if (name === "class") element.className = value;
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const replace = (element, ...children) => element.replaceChildren(...children.filter((child) => child));

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

export const faded = (hex, share) => {
  const number = parseInt(hex.slice(1), 16);
  return `rgba(${number >> 16},${(number >> 8) & 255},${number & 255},${share})`;
};

export const LINE_COLOURS = 10;
export const lineColour = (index) => colour("c" + (((index % LINE_COLOURS) + LINE_COLOURS) % LINE_COLOURS));

/* At most one call of `act` in a frame, or in so many milliseconds; the last one counts. */
export function perFrame(act) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; act(); });
  };
}
export function later(act, milliseconds) {
  let timer = 0;
  return (...given) => { clearTimeout(timer); timer = setTimeout(() => act(...given), milliseconds); };
}

let saidTimer = 0;
export function say(text) {
  const place = byId("said");
  place.textContent = text;
  place.classList.add("on");
  clearTimeout(saidTimer);
  saidTimer = setTimeout(() => place.classList.remove("on"), 2600);
}

export function canvasOf(element, width, height) {
  const canvas = element.querySelector("canvas") || element.appendChild(document.createElement("canvas"));
  const dots = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * dots) || canvas.height !== Math.round(height * dots)) {
    canvas.width = Math.round(width * dots);
    canvas.height = Math.round(height * dots);
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
  }
  const context = canvas.getContext("2d");
  context.setTransform(dots, 0, 0, dots, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px " + getComputedStyle(document.body).fontFamily;
  return context;
}
