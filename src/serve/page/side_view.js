import { ask } from "./dialogs.js";
import { iconButton, make } from "./dom.js";
import { t, when } from "./words.js";

const kNarrow = matchMedia("(max-width: 820px)");

/** The list of chats. On a narrow screen it covers the page, which then takes no focus. */
export class SideView {
  /** `actions`: open(chat), rename(chat, title), exportChats(chats), remove(chat), create(). */
  constructor(store, talk, actions) {
    Object.assign(this, { store, talk, actions, current: null });
    const on = (id, event, handler) => document.getElementById(id).addEventListener(event, handler);
    on("show-side", "click", () => this.toggle(!this.isOpen()));
    on("hide-side", "click", () => this.toggle(false));
    on("shade", "click", () => this.toggle(false));
    on("find", "input", () => this.show());
    on("new-chat", "click", () => {
      this.leaveNarrow();
      actions.create();
    });
    this.toggle(!kNarrow.matches, false);
    kNarrow.addEventListener("change", () => this.toggle(!kNarrow.matches, false));
  }

  isOpen() {
    return document.body.classList.contains("with-side");
  }

  isAbove() {
    return kNarrow.matches && this.isOpen();
  }

  toggle(open, focus = true) {
    document.body.classList.toggle("with-side", open);
    document.getElementById("show-side").setAttribute("aria-expanded", String(open));
    document.querySelector("main").inert = open && kNarrow.matches;
    if (focus) document.getElementById(open ? "new-chat" : "show-side").focus();
  }

  leaveNarrow() {
    if (this.isAbove()) this.toggle(false, false);
  }

  show(current = this.current) {
    this.current = current;
    const sought = document.getElementById("find").value.trim().toLowerCase();
    const holds = (chat) => [chat.title, ...chat.messages.map(({ content }) => content)].some((text) => text.toLowerCase().includes(sought));
    const chats = this.store.list().filter((chat) => !sought || holds(chat));
    this.fill(document.getElementById("chat-list"), chats);
    document.getElementById("no-chats").textContent = chats.length ? "" : t(sought ? "noneFound" : "noChats");
    document.getElementById("export-chats").disabled = this.store.chats.size === 0;
  }

  /** Rebuilds the list, also when an answer ends, and restores the focus. */
  fill(list, chats) {
    const row = document.activeElement.closest?.("#chat-list li");
    const place = row ? [row.dataset.chat, [...row.querySelectorAll("button")].indexOf(document.activeElement)] : null;
    list.replaceChildren(...chats.map((chat) => this.row(chat)));
    if (place) list.querySelector(`[data-chat="${place[0]}"]`)?.querySelectorAll("button")[place[1]]?.focus();
  }

  row(chat) {
    const open = make("button", { type: "button", class: "chat", "aria-current": chat.id === this.current?.id ? "page" : null },
      make("span", { class: "chat-title", text: chat.title || t("untitled") }),
      make("span", { class: "soft", text: this.talk.isRunning(chat) ? t("answers") : when(chat.updated) }));
    open.addEventListener("click", () => {
      this.leaveNarrow();
      this.actions.open(chat);
    });
    const named = (word) => `${t(word)}: ${chat.title || t("untitled")}`;
    return make("li", { "data-chat": chat.id }, open, make("div", { class: "chat-buttons" },
      iconButton("pencil", named("rename"), () => this.rename(chat)),
      iconButton("save", named("export"), () => this.actions.exportChats([chat])),
      iconButton("trash", named("delete"), () => this.actions.remove(chat))));
  }

  async rename(chat) {
    const title = await ask({ title: t("rename"), value: chat.title, ok: t("saveEdit"), field: { type: "text", maxlength: "120" } });
    if (title !== null) this.actions.rename(chat, title);
  }
}
