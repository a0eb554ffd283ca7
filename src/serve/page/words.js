// Texts of the page in the user's language.

import { local } from "./storage.js";
import { kEnglish } from "./words_en.js";
import { kChinese } from "./words_zh.js";

const kKey = "trireme.language";
export const kLanguages = { en: kEnglish, zh: kChinese };
let language = "en";

/** Returns the language chosen before, otherwise the browser's preference. */
export function preferredLanguage() {
  const preferred = [local.get(kKey), ...navigator.languages].filter(Boolean);
  return preferred.map((name) => name.slice(0, 2)).find((name) => name in kLanguages) ?? "en";
}

export function chooseLanguage(name) {
  local.set(kKey, name);
}

/** Returns a text by name; `values` replace its {placeholders}. */
export function t(name, values = {}) {
  return kLanguages[language][name].replace(/\{(\w+)\}/g, (_, place) => String(values[place]));
}

/** Sets the language and the static texts of the document. */
export function showWords(name) {
  language = name;
  document.documentElement.lang = name === "zh" ? "zh-CN" : name;
  for (const node of document.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  for (const node of document.querySelectorAll("[data-t-placeholder]")) node.placeholder = t(node.dataset.tPlaceholder);
  for (const node of document.querySelectorAll("[data-t-label]")) {
    node.setAttribute("aria-label", t(node.dataset.tLabel));
    if (node.tagName === "BUTTON") node.title = t(node.dataset.tLabel);
  }
}

/** Formats a number, for example 1234.5, in the current language. */
export function number(value, digits = 0) {
  return value.toLocaleString(language, { maximumFractionDigits: digits });
}

/** Formats a time: the time of day if it is today, otherwise the date. */
export function when(time) {
  const date = new Date(time);
  const today = date.toDateString() === new Date().toDateString();
  return date.toLocaleString(language, today ? { hour: "2-digit", minute: "2-digit" } : { month: "short", day: "numeric" });
}
