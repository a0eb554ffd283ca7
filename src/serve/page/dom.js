// Helpers for DOM nodes. Text is always set as text: output of a model is never parsed as HTML.

/**
 * Makes an element. `properties`: `text`, `on: {event: handler}`, and attributes. Attributes that
 * are undefined, null or false are left out. Children that are null are left out, too; a child may
 * be a list of any length.
 */
export function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") {
      node.textContent = value;
    } else if (name === "on") {
      for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    } else {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

// SVG paths in a 24 x 24 view box.
const kIcons = {
  menu: "M4 6h16 M4 12h16 M4 18h16",
  plus: "M12 5v14 M5 12h14",
  sliders: "M4 7h9 M19 7h1 M4 17h3 M13 17h7 M16 4.5v5 M10 14.5v5",
  send: "M12 19V5 M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h11v11H9z M5 15H4V4h11v1",
  check: "M5 12.5l4.5 4.5L19 7.5",
  pencil: "M4 20h4L19 9l-4-4L4 16z M13 7l4 4",
  again: "M20 12a8 8 0 1 1-2.6-5.9 M20 3v5h-5",
  trash: "M4 7h16 M9 7V4h6v3 M6 7l1 13h10l1-13 M10 11v5 M14 11v5",
  save: "M12 4v11 M7 11l5 5 5-5 M5 20h14",
  load: "M12 16V5 M7 9l5-5 5 5 M5 20h14",
  close: "M6 6l12 12 M18 6L6 18",
  down: "M6 9l6 6 6-6",
  thought: "M9 18h6 M10 21h4 M8.5 15c-2-1.4-3-3.2-3-5.3a6.5 6.5 0 0 1 13 0c0 2.1-1 3.9-3 5.3z",
  tool: "M14.5 6.5a4 4 0 0 1 5-2.5l-2.6 2.6 1.5 1.5L21 5.5a4 4 0 0 1-5.5 5L8 18a2.1 2.1 0 0 1-3-3l7.5-7.5",
  warning: "M12 4l9 16H3z M12 10v4 M12 17v.5",
};

/** Makes a decorative icon beside words or in a labelled button; screen readers skip it. */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const node = document.createElementNS(space, "svg");
  const path = document.createElementNS(space, "path");
  for (const [key, value] of [["viewBox", "0 0 24 24"], ["aria-hidden", "true"], ["class", "icon"]]) {
    node.setAttribute(key, value);
  }
  path.setAttribute("d", kIcons[name]);
  node.append(path);
  return node;
}

/**
 * Makes a button that shows only an icon. `label` is its tooltip and its name for screen readers.
 */
export function iconButton(name, label, onClick, properties = {}) {
  const shared = { type: "button", class: "icon-button", "aria-label": label, title: label, on: { click: onClick } };
  return make("button", { ...shared, ...properties }, icon(name));
}

/**
 * Copies text. The fallback serves pages without TLS from another machine, where browsers have no
 * clipboard object.
 */
export async function copyText(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = make("textarea", { class: "hidden-text", "aria-hidden": "true" });
  const before = document.activeElement;
  area.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  before?.focus();
  if (!done) throw new Error("copy");
}

/**
 * Returns true if Enter belongs to an input method that is composing (229: Safari ends the
 * composition first).
 */
export function isComposing(event) {
  return event.isComposing || event.keyCode === 229;
}
