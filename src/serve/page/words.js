// The page's own words, in the reader's language.

import { local } from "./kept.js";
import { kEnglish } from "./words_en.js";
import { kChinese } from "./words_zh.js";

const kKey = "trireme.language";
export const kLanguages = { en: kEnglish, zh: kChinese };
let language = "en";

/** What was chosen before, else what the browser prefers. */
export function preferredLanguage() {
  const wishes = [local.get(kKey), ...navigator.languages].filter(Boolean);
  return wishes.map((wish) => wish.slice(0, 2)).find((wish) => wish in kLanguages) ?? "en";
}

export function chooseLanguage(name) {
  local.set(kKey, name);
}

/** Words by name; {places} are filled from `values`. */
export function t(name, values = {}) {
  return kLanguages[language][name].replace(/\{(\w+)\}/g, (_, place) => String(values[place]));
}

/** Sets the language and all words of the document that stand there from the beginning. */
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

/** 1234.5 as the language writes it. */
export function number(value, digits = 0) {
  return value.toLocaleString(language, { maximumFractionDigits: digits });
}

/** A point in time: the hour today, else the day. */
export function when(time) {
  const date = new Date(time);
  const today = date.toDateString() === new Date().toDateString();
  return date.toLocaleString(language, today ? { hour: "2-digit", minute: "2-digit" } : { month: "short", day: "numeric" });
}
