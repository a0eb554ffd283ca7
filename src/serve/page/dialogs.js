// Dialogs and notices above the page. The <dialog> element keeps the focus inside and closes with
// Escape.

import { icon, iconButton, isComposing, make } from "./dom.js";
import { t } from "./words.js";

/** Opens a dialog with a title. `onClose` runs once, whatever closes the dialog. */
export function openDialog(title, content, onClose, properties = {}) {
  const close = iconButton("close", t("close"), () => dialog.close());
  const head = make("div", { class: "dialog-head" }, make("h2", { id: "dialog-title", text: title }), close);
  const dialog = make("dialog", { "aria-labelledby": "dialog-title", ...properties }, head, content);
  const before = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    before?.blur();  // Chromium restores the focus but leaves the caret at the place of the dialog
    before?.focus({ preventScroll: true });
    onClose();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Asks for a line of text (`field`: attributes of the input) or for confirmation. Resolves to the
 * text, or to null.
 */
export function ask({ title, note = "", problem = "", field = null, value = "", ok, danger = false }) {
  return new Promise((resolve) => {
    let answer = null;
    const input = field ? make("input", { ...field, "aria-label": title, "aria-describedby": "dialog-note", autocomplete: "off" }) : null;
    if (input) input.value = value;
    const form = make("form", { class: "question" },
      make("p", { id: "dialog-note", text: note }),
      problem ? make("p", { class: "problem", role: "alert", text: problem }) : null,
      input,
      make("div", { class: "row end" },
        make("button", { type: "button", class: "small-button", text: t("cancel"), on: { click: () => dialog.close() } }),
        make("button", { type: "submit", class: danger ? "main-button danger" : "main-button", text: ok })));
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && isComposing(event)) event.stopPropagation();
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (input && input.value.trim() === "") return;
      answer = input ? input.value.trim() : "";
      dialog.close();
    });
    const dialog = openDialog(title, form, () => resolve(answer), { class: "small" });
    input?.focus();
    input?.select();
  });
}

export function askToken(wrong) {
  return ask({
    title: t("tokenTitle"), note: t("tokenNote"), problem: wrong ? t("tokenWrong") : "", ok: t("tokenOk"),
    field: { type: "password", required: true, id: "token" },
  });
}

const kNoticeMs = 10000;

export function dropNotices() {
  document.getElementById("notices").replaceChildren();
}

/**
 * Shows a notice above the chat. With `action`, the notice has an undo button. The notice stays
 * while the pointer is on it.
 */
export function notify(text, action = null) {
  const list = document.getElementById("notices");
  const notice = make("div", { class: "notice" }, make("span", { text }));
  let timer = 0;
  const close = () => {
    clearTimeout(timer);
    notice.remove();
  };
  const start = () => {
    clearTimeout(timer);
    timer = setTimeout(close, kNoticeMs);
  };
  if (action) {
    const run = () => {
      close();
      action();
    };
    notice.append(make("button", { type: "button", class: "small-button", on: { click: run } }, icon("again"), make("span", { text: t("undo") })));
  }
  notice.append(iconButton("close", t("close"), close));
  for (const event of ["pointerenter", "focusin"]) notice.addEventListener(event, () => clearTimeout(timer));
  for (const event of ["pointerleave", "focusout"]) notice.addEventListener(event, start);
  list.replaceChildren(notice);
  start();
}
