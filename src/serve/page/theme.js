// Dark or light theme: chosen here, otherwise as in the system.

import { local } from "./storage.js";

const kKey = "trireme.theme";

export function preferredTheme() {
  const stored = local.get(kKey);
  return ["light", "dark"].includes(stored) ? stored : "auto";
}

export function chooseTheme(theme) {
  document.documentElement.dataset.theme = theme;
  local.set(kKey, theme);
}

document.documentElement.dataset.theme = preferredTheme();
