// Making elements. Whatever comes from the memory becomes text nodes: nothing here takes markup.

const SVG = "http://www.w3.org/2000/svg";
// Made once: making one takes longer than a row of a list may.
const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });

/** An element: properties that begin with "on" are listeners, `class` and `aria-…`, `data-…` attributes; children are nodes or text. */
export function el(name, properties = {}, ...children) {
  return filled(document.createElement(name), properties, children);
}

/** The same in a picture. */
export function svg(name, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, name), properties, children);
}

function filled(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Says something to whoever listens instead of looking. */
export function announce(text) {
  document.getElementById("live").textContent = text;
}

/** A word at the edge of the page, for a while. */
export function toast(text, kind = "good") {
  const note = el("div", { class: `toast ${kind}`, role: kind === "bad" ? "alert" : null }, text);
  document.getElementById("toasts").append(note);
  if (kind !== "bad") announce(text);
  setTimeout(() => note.remove(), kind === "bad" ? 9000 : 4000);
}

/** A date as people say it: "3 min ago". The element holds the whole of it. */
export function ago(iso) {
  if (!iso) return el("span", { class: "quiet" }, "undated");
  return el("time", { datetime: iso, title: exact(iso) }, agoText(iso));
}

/** A date whole, as this person writes them. */
export function exact(iso) {
  return EXACT.format(new Date(iso));
}

export function agoText(iso) {
  const seconds = (Date.now() - Date.parse(iso)) / 1000;
  return seconds < 0 ? `in ${span(-seconds)}` : seconds < 10 ? "just now" : `${span(seconds)} ago`;
}

/** A length of time in one unit. */
export function span(seconds) {
  if (seconds < 90) return `${Math.max(Math.round(seconds), 0)} s`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.round(seconds / 3600)} h`;
  if (seconds < 60 * 86400) return `${Math.round(seconds / 86400)} days`;
  if (seconds < 700 * 86400) return `${Math.round(seconds / 2629800)} months`;
  return `${Math.round(seconds / 31557600)} years`;
}

export function counted(count, one, many = `${one}s`) {
  return `${count.toLocaleString()} ${count === 1 ? one : many}`;
}

/** A text with its highlights: `marks` are starts and ends in characters (not in UTF-16 units). */
export function marked(text, marks) {
  const characters = marks.length ? Array.from(text) : [];
  const nodes = [];
  let at = 0;
  for (const [start, end] of marks) {
    if (start < at || end <= start) continue;
    nodes.push(characters.slice(at, start).join(""), el("mark", {}, characters.slice(start, end).join("")));
    at = end;
  }
  nodes.push(marks.length ? characters.slice(at).join("") : text);
  return nodes.filter((node) => node !== "");
}

/** A sentence of ours: what stands between backticks is a command. */
export function prose(text) {
  return text.split("`").map((part, number) => (number % 2 ? el("code", {}, part) : part));
}

/** What is shown while something is awaited. */
export function skeleton(rows = 3) {
  return el("div", { class: "skeleton", "aria-hidden": "true" }, Array.from({ length: rows }, () => el("div")));
}

/** A place where there is nothing, with why, and what to do. */
export function empty(title, text, ...more) {
  return el("div", { class: "empty" }, el("h2", {}, title), text ? el("p", {}, text) : null, more);
}

/** The same of an error. */
export function failure(error, again) {
  return el(
    "div",
    { class: "empty failed", role: "alert" },
    el("h2", {}, error.message),
    error.hint ? el("p", {}, prose(error.hint)) : null,
    again ? el("button", { type: "button", onclick: again }, "Try again") : null,
  );
}

/** A dialog with a title and content; resolves to what `answer` was called with, or null. */
export function dialog(title, build, { wide = false } = {}) {
  return new Promise((resolve) => {
    let answered = null;
    const answer = (value) => {
      answered = value;
      box.close();
    };
    const name = `dialog-${Math.random().toString(36).slice(2)}`;
    const box = el(
      "dialog",
      { "aria-labelledby": name, class: wide ? "wide" : null },
      el(
        "div",
        { class: "dialog-head" },
        el("h2", { id: name }, title),
        el("button", { type: "button", class: "icon", "aria-label": "Close", onclick: () => box.close() }, cross()),
      ),
    );
    box.append(...[build(answer)].flat());
    box.addEventListener("click", (event) => {
      if (event.target === box) box.close();
    });
    box.addEventListener("close", () => {
      box.remove();
      resolve(answered);
    });
    document.body.append(box);
    box.showModal();
  });
}

/** Asks before something that cannot be undone. */
export function confirmed(title, text, word, quoted = "") {
  return dialog(title, (answer) => [
    quoted ? el("blockquote", { class: "quoted" }, quoted.length > 300 ? `${quoted.slice(0, 300)}…` : quoted) : null,
    el("p", {}, text),
    el(
      "div",
      { class: "row end" },
      el("button", { type: "button", autofocus: true, onclick: () => answer(false) }, "Cancel"),
      el("button", { type: "button", class: "danger", onclick: () => answer(true) }, word),
    ),
  ].filter(Boolean));
}

export function cross() {
  return svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: "m6 6 12 12M18 6 6 18" }));
}

/** A labelled field. */
export function field(label, input, hint = "") {
  return el("label", { class: "field" }, el("span", {}, label), input, hint ? el("small", {}, hint) : null);
}

/** A list to choose from. */
export function choice(options, value, properties = {}) {
  return el(
    "select",
    properties,
    options.map(([key, text]) => el("option", { value: key, selected: key === value }, text)),
  );
}
