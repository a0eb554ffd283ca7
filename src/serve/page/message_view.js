import { callNodes, resultForm } from "./calls_view.js";
import { icon, iconButton, isComposing, make } from "./dom.js";
import { copyButton, MarkdownView } from "./markdown_view.js";
import { tokensPerSecond } from "./stream.js";
import { number, t } from "./words.js";

/**
 * Separates the thought from the answer. Chat formats without a separate field write the thought
 * before the answer.
 */
export function partsOf(message) {
  const { content, reasoning_content: thought } = message;
  const match = thought ? null : /^\s*<think>\n?/.exec(content);
  if (!match) return { thought: thought ?? "", content, thinks: Boolean(thought) && content === "" };
  const end = content.indexOf("</think>", match[0].length);
  if (end < 0) return { thought: content.slice(match[0].length), content: "", thinks: true };
  return { thought: content.slice(match[0].length, end), content: content.slice(end + 8).trimStart(), thinks: false };
}

function statsOf({ stats, finish }, running) {
  const parts = [];
  const speed = tokensPerSecond(stats);
  if (stats.promptTokens) parts.push(t("promptTokens", { count: number(stats.promptTokens) }));
  if (stats.tokens ?? stats.pieces) parts.push(t("tokens", { count: number(stats.tokens ?? stats.pieces) }));
  if (speed) parts.push(t("tokensPerSecond", { speed: number(speed, speed < 100 ? 1 : 0) }));
  if (stats.firstMs !== undefined && !running) parts.push(t("firstAfter", { seconds: number(stats.firstMs / 1000, 2) }));
  if (!running && ["length", "stopped", "interrupted"].includes(finish)) parts.push(t(`finish_${finish}`));
  return parts.join(" · ");
}

/** Explains an error and what to do, and shows the message of the server. */
function errorNode(message, onRetry) {
  const [, status, said] = /^(\d+) (.*)$/s.exec(message.error) ?? [null, "500", message.error];
  const known = { 0: "errorOffline", 401: "errorToken", 403: "errorForbidden", 429: "errorBusy", 503: "errorDraining" }[status];
  const retry = onRetry && make("button", { type: "button", class: "small-button", on: { click: onRetry } }, icon("again"), make("span", { text: t("retry") }));
  return make("div", { class: "problem" }, icon("warning"),
    make("div", {}, make("p", { text: known ? t(known) : t("errorOther") }), said ? make("p", { class: "said", text: said }) : null, retry));
}

/**
 * Shows one message. `actions`: edit(message, text, andAnswer), regenerate(message),
 * remove(message), results(message, texts). `update` may be called for each token: unchanged parts
 * keep their nodes.
 */
export class MessageView {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.shown = null;
    this.content = new MarkdownView("content");
    this.node = make("article", { class: `message ${message.role}`, "aria-label": this.name(), tabindex: "-1" });
  }

  name() {
    const { role, name, model } = this.message;
    if (role === "tool") return t("resultOf", { name: name || t("tool") });
    return role === "user" ? t("you") : (model || t("assistant"));
  }

  /**
   * `running`: the answer is in progress; `last`: it is the last message; `idle`: the chat waits
   * for its user.
   */
  update({ running, last, idle }) {
    const { message } = this;
    if (this.editing) return;
    const state = JSON.stringify([running, last, idle]);
    if (state === this.shown) {
      if (running) this.grow();
      return;
    }
    this.shown = state;
    const head = make("h2", { class: message.role === "tool" ? "" : "hidden-text", text: this.name() });
    if (message.role !== "assistant") {
      const text = make(message.role === "tool" ? "pre" : "div", { class: "bubble", text: message.content });
      this.node.replaceChildren(head, text, this.buttons(!idle));
      return;
    }
    this.stats = make("span", { class: "stats" });
    this.thoughts ??= this.makeThoughts();
    this.calls = make("div", { class: "calls" });
    this.waiting = make("p", { class: "waiting" }, make("span", { class: "dots", "aria-hidden": "true" }), make("span"));
    const retry = last && idle ? () => this.actions.regenerate(message) : null;
    this.node.replaceChildren(head, this.waiting, this.thoughts.node, this.content.node, this.calls,
      ...(message.error ? [errorNode(message, retry)] : []),
      ...(last && idle && message.tool_calls?.length ? [resultForm(message, this.actions.results)] : []),
      make("div", { class: "under" }, this.buttons(!idle), this.stats));
    this.grow();
  }

  grow() {
    const { message } = this;
    const { thought, content, thinks } = partsOf(message);
    const running = JSON.parse(this.shown)[0];
    this.waiting.hidden = !running || thought !== "" || content !== "" || Boolean(message.tool_calls);
    this.waiting.lastChild.textContent = message.waiting ? t("waitingFor", { seconds: message.waiting }) : t("waiting");
    this.thoughts.node.hidden = thought.trim() === "";
    if (!this.thoughts.node.hidden) this.growThoughts(thought, running && thinks);
    this.content.show(content);
    this.calls.replaceChildren(...callNodes(message.tool_calls ?? []));
    this.stats.textContent = statsOf(message, running);
    this.node.setAttribute("aria-busy", String(running));
  }

  makeThoughts() {
    const words = make("span");
    const view = new MarkdownView();
    const node = make("details", { class: "thoughts" }, make("summary", {}, icon("thought"), words), view.node);
    node.addEventListener("toggle", () => view.show(partsOf(this.message).thought));
    return { node, words, view };
  }

  growThoughts(thought, thinks) {
    const { thoughtMs } = this.message.stats;
    const done = thoughtMs ? t("thoughtFor", { seconds: number(thoughtMs / 1000, 1) }) : t("thoughts");
    this.thoughts.words.textContent = thinks ? t("thinks") : done;
    this.thoughts.node.classList.toggle("now", thinks);
    if (this.thoughts.node.open) this.thoughts.view.show(thought);
  }

  buttons(busy) {
    const { message, actions } = this;
    const row = make("div", { class: "buttons", role: "group", "aria-label": t("actions") });
    if (busy) return row;
    const copy = copyButton(t("copy"), () => partsOf(message).content);
    copy.className = "icon-button";
    copy.setAttribute("aria-label", t("copy"));
    copy.title = t("copy");
    row.append(copy);
    if (message.role === "assistant") row.append(iconButton("again", t("regenerate"), () => actions.regenerate(message)));
    row.append(iconButton("pencil", t("edit"), () => this.edit(), { "data-action": "edit" }),
      iconButton("trash", t("delete"), () => actions.remove(message)));
    return row;
  }

  edit() {
    const { message } = this;
    const isUser = message.role === "user";
    const area = make("textarea", { "aria-label": t("edit"), rows: String(Math.min(14, message.content.split("\n").length + 1)) });
    area.value = message.content;
    const end = (andAnswer) => {
      this.editing = false;
      this.shown = null;
      this.actions.edit(message, andAnswer === null ? message.content : area.value, andAnswer === true);
      this.node.focus();
    };
    const button = (name, label, value) => make("button", { type: "button", class: name, text: label, on: { click: () => end(value) } });
    const form = make("div", { class: "edit" }, area, make("div", { class: "row end" }, button("small-button", t("cancel"), null),
      button(isUser ? "small-button" : "main-button", t("saveEdit"), false), isUser ? button("main-button", t("sendEdit"), true) : null));
    area.addEventListener("keydown", (event) => {
      if (isComposing(event)) return;
      if (event.key === "Escape") end(null);
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) end(isUser);
    });
    this.editing = true;
    this.node.replaceChildren(make("h2", { class: "hidden-text", text: this.name() }), form);
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}
