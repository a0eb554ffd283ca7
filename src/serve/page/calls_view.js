// Tool calls. The page shows the calls but runs nothing: the user types the results.

import { icon, make } from "./dom.js";
import { t } from "./words.js";

/** Formats JSON arguments; returns other text (for example incomplete JSON) unchanged. */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export function callNodes(calls) {
  return calls.map((call) => make("div", { class: "call" },
    make("p", {}, icon("tool"), make("span", { text: t("calls") }), make("code", { text: call.name })),
    make("pre", { tabindex: "0", role: "region", "aria-label": t("arguments", { name: call.name }), text: pretty(call.arguments) })));
}

/**
 * Makes a form with a field for each call. Calls `onSend(message, texts)` when the user sends the
 * results.
 */
export function resultForm(message, onSend) {
  const areas = message.tool_calls.map(() => make("textarea", { rows: "2", required: true, placeholder: t("resultHint") }));
  const fields = message.tool_calls.map((call, at) => make("label", {}, make("span", { text: t("resultOf", { name: call.name }) }), areas[at]));
  const send = make("button", { type: "submit", class: "main-button", text: t("sendResults") });
  const form = make("form", { class: "results" }, ...fields, make("div", { class: "row end" }, send));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    onSend(message, areas.map((area) => area.value));
  });
  return form;
}
