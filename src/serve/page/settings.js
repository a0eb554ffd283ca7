// The settings of a chat. Each chat has its own settings; a new chat starts with those used last.

import { local } from "./storage.js";

/**
 * Numbers of a request. Unset numbers are not sent, so the server's defaults apply. The ranges must
 * be the same as in the server (tests/unit/serve/page_test).
 */
export const kNumbers = [
  { name: "temperature", min: 0, max: 100, step: 0.05 },
  { name: "top_p", min: 0, max: 1, step: 0.01 },
  { name: "top_k", min: 0, max: 1000000, step: 1 },
  { name: "min_p", min: 0, max: 0.99, step: 0.01 },
  { name: "repetition_penalty", min: 0.01, max: 100, step: 0.05 },
  { name: "presence_penalty", min: -2, max: 2, step: 0.1 },
  { name: "frequency_penalty", min: -2, max: 2, step: 0.1 },
  { name: "max_tokens", min: 1, max: 10000000, step: 1 },
  { name: "seed", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1 },
];

export const kThinking = ["auto", "on", "off"];
const kKey = "trireme.settings";

/** Reads stored or imported settings and leaves out unknown or invalid values. */
export function readSettings(value) {
  const from = value && typeof value === "object" ? value : {};
  const text = (name) => (typeof from[name] === "string" ? from[name] : "");
  const settings = {
    model: text("model"),
    system: text("system"),
    tools: toolsOf(text("tools")) ? text("tools") : "",
    toolChoice: text("toolChoice") || "auto",
    thinking: kThinking.includes(from.thinking) ? from.thinking : "auto",
    numbers: {},
  };
  for (const { name, min, max, step } of kNumbers) {
    const number = from.numbers?.[name];
    const whole = step < 1 || Number.isInteger(number);
    if (Number.isFinite(number) && number >= min && number <= max && whole) settings.numbers[name] = number;
  }
  return settings;
}

/** Parses a list of tools: [] for an empty text, null for an invalid one. */
export function toolsOf(text) {
  if (text.trim() === "") return [];
  try {
    const tools = JSON.parse(text);
    const good = (tool) => typeof tool?.function?.name === "string" && tool.function.name !== "";
    return Array.isArray(tools) && tools.every(good) ? tools : null;
  } catch {
    return null;
  }
}

export const kExampleTools = JSON.stringify([{
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather of a city now",
    parameters: {
      type: "object",
      properties: { city: { type: "string", description: "Name of the city" } },
      required: ["city"],
    },
  },
}], null, 2);

/** Returns the settings for a new chat. */
export function lastSettings() {
  try {
    return readSettings(JSON.parse(local.get(kKey)));
  } catch {
    return readSettings(null);
  }
}

export function keepSettings(settings) {
  local.set(kKey, JSON.stringify(settings));
}
