// Dark or light: as the system has it, or as chosen here.

import { local } from "./kept.js";

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
