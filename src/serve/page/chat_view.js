import { make } from "./dom.js";
import { MessageView, partsOf } from "./message_view.js";
import { t } from "./words.js";

const kNearPx = 60;  // within this distance of the end, the view scrolls with new text
const kMaxSpoken = 2000;

/** Shows the messages of the open chat and the answer in progress. */
export class ChatView {
  /**
   * `actions`: the actions of MessageView, and suggest(text) for the suggestions of an empty chat.
   */
  constructor(talk, actions) {
    this.talk = talk;
    this.actions = actions;
    this.list = document.getElementById("messages");
    this.frame = document.getElementById("scroll");
    this.live = document.getElementById("live");
    this.toEnd = document.getElementById("to-end");
    this.views = new Map();
    this.chat = null;
    this.follows = true;
    this.planned = 0;
    this.frame.addEventListener("scroll", () => this.noteScroll());
    const sizes = new ResizeObserver(() => this.follow());
    for (const node of [this.list, this.frame]) sizes.observe(node);
    this.toEnd.addEventListener("click", () => this.scrollToEnd());
    talk.addEventListener("change", ({ detail }) => this.changed(detail));
  }

  /** Shows a chat and scrolls to its end. Also used after a change of language. */
  show(chat) {
    this.chat = chat;
    this.views.clear();
    this.list.replaceChildren();
    this.live.textContent = "";
    this.sync();
    this.scrollToEnd();
  }

  /** Updates the nodes to match the messages of the chat. */
  sync() {
    const { messages } = this.chat;
    const running = this.talk.isRunning(this.chat);
    const nodes = messages.map((message, at) => {
      let view = this.views.get(message.id);
      if (view?.message !== message) view = new MessageView(message, this.actions);
      this.views.set(message.id, view);
      const last = at === messages.length - 1;
      view.update({ running: running && last, last, idle: !running });
      return view.node;
    });
    if (!nodes.length) nodes.push(this.welcome());
    nodes.forEach((node, at) => {
      if (this.list.children[at] !== node) this.list.insertBefore(node, this.list.children[at] ?? null);
    });
    while (this.list.children.length > nodes.length) this.list.lastChild.remove();
    const kept = new Set(messages.map(({ id }) => id));
    for (const id of this.views.keys()) if (!kept.has(id)) this.views.delete(id);
  }

  changed({ chat, message, done }) {
    if (chat !== this.chat) return;
    if (done) this.speak(message);
    if (done || !this.views.has(message.id)) {
      if (!done) this.live.textContent = t("answering");
      this.sync();
      return;
    }
    // Tokens may arrive faster than the screen is drawn.
    this.planned ||= requestAnimationFrame(() => {
      this.planned = 0;
      const view = this.views.get(this.chat.messages.at(-1)?.id);
      if (this.talk.isRunning(this.chat)) view?.update({ running: true, last: true, idle: false });
    });
  }

  /** Gives a finished answer to screen readers, once. */
  speak(message) {
    const text = message.error ? t("answerFailed") : `${t("answerDone")} ${partsOf(message).content.slice(0, kMaxSpoken)}`;
    this.live.textContent = text;
  }

  focusMessage(at) {
    const message = this.chat.messages[Math.min(at, this.chat.messages.length - 1)];
    (this.views.get(message?.id)?.node ?? document.getElementById("input")).focus({ preventScroll: true });
  }

  /** Opens the last message of the user for editing, if there is one. */
  editLast() {
    const message = this.chat.messages.findLast(({ role }) => role === "user");
    if (message && !this.talk.isRunning(this.chat)) this.views.get(message.id).edit();
  }

  noteScroll() {
    const { scrollHeight, scrollTop, clientHeight } = this.frame;
    this.follows = scrollHeight - scrollTop - clientHeight < kNearPx;
    this.toEnd.hidden = this.follows;
  }

  follow() {
    if (this.follows) this.frame.scrollTop = this.frame.scrollHeight;
    else this.noteScroll();
  }

  scrollToEnd() {
    this.follows = true;
    this.follow();
    this.toEnd.hidden = true;
  }

  welcome() {
    const suggestions = [1, 2, 3, 4].map((at) => t(`suggestion${at}`));
    const buttons = suggestions.map((text) => make("button", { type: "button", text, on: { click: () => this.actions.suggest(text) } }));
    return make("div", { class: "welcome" }, make("h2", { text: t("welcome") }), make("p", { class: "soft", text: t("welcomeNote") }),
      make("div", { class: "suggestions" }, ...buttons));
  }
}
