import { icon, isComposing } from "./dom.js";
import { session } from "./storage.js";
import { toolsOf } from "./settings.js";
import { t } from "./words.js";

const kDraftKey = "trireme.draft";

/** The input field with the button that sends, or stops the running answer. */
export class Composer {
  /** `actions`: send(text), stop(), editLast(), settingsChanged(), openTools(). */
  constructor(actions) {
    this.actions = actions;
    this.form = document.getElementById("composer");
    this.input = document.getElementById("input");
    this.button = document.getElementById("send");
    this.thinking = document.getElementById("thinking");
    this.tools = document.getElementById("open-tools");
    this.running = false;
    this.ready = false;
    this.input.value = session.get(kDraftKey) ?? "";
    this.input.addEventListener("input", () => this.typed());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.running) actions.stop();
      else this.send();
    });
    this.thinking.addEventListener("change", () => {
      this.settings.thinking = this.thinking.value;
      actions.settingsChanged();
    });
    this.tools.addEventListener("click", () => actions.openTools());
  }

  /** `running`: an answer is in progress; `ready`: the server accepts requests. */
  show({ settings, running, ready }) {
    Object.assign(this, { settings, running, ready });
    this.thinking.value = settings.thinking;
    const count = (toolsOf(settings.tools) ?? []).length;
    this.tools.hidden = count === 0;
    this.tools.lastChild.textContent = t("toolCount", { count });
    const label = t(running ? "stop" : "send");
    this.button.replaceChildren(icon(running ? "stop" : "send"));
    this.button.setAttribute("aria-label", label);
    this.button.title = label;
    this.button.classList.toggle("running", running);
    this.typed();
  }

  typed() {
    session.set(kDraftKey, this.input.value);
    this.button.disabled = !this.running && (!this.ready || this.input.value.trim() === "");
    this.input.style.height = "auto";
    this.input.style.height = `${this.input.scrollHeight}px`;
  }

  /** Ignores an Enter that only ends a composition (Chinese, Japanese, Korean). */
  key(event) {
    if (isComposing(event)) return;
    if (event.key === "Enter" && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      if (!this.running) this.send();
    } else if (event.key === "ArrowUp" && this.input.value === "") {
      event.preventDefault();
      this.actions.editLast();
    }
  }

  send() {
    const text = this.input.value.trim();
    if (text === "" || !this.ready) return;
    this.input.value = "";
    this.typed();
    this.actions.send(text);
  }
}
