// Main module: stores the open chat, handles the actions of the user, and shows the state of the
// server.

import { ChatStore, exportChats, importChats, newChat, newMessage } from "./chats.js";
import { ChatView } from "./chat_view.js";
import { Composer } from "./composer.js";
import { askToken, dropNotices, notify } from "./dialogs.js";
import { icon, make } from "./dom.js";
import { session } from "./storage.js";
import { Server } from "./server.js";
import { keepSettings, lastSettings } from "./settings.js";
import { openSettings } from "./settings_view.js";
import { SideView } from "./side_view.js";
import { Talk } from "./talk.js";
import { chooseTheme, preferredTheme } from "./theme.js";
import { chooseLanguage, preferredLanguage, showWords, t } from "./words.js";

// a sessionStorage key: after a reload, the window shows the same chat
const kOpenKey = "trireme.open";
const kTitleLetters = 60;
const byId = (id) => document.getElementById(id);

const store = new ChatStore();
const server = new Server(askToken);
const talk = new Talk(store, server);
let chat = store.get(session.get(kOpenKey)) ?? newChat(lastSettings());

const chatView = new ChatView(talk, { edit, regenerate, remove, results, suggest: send });
const sideView = new SideView(store, talk, { open, rename, remove: removeChat, exportChats: download, create: () => open(newChat(lastSettings())) });
const composer = new Composer({
  send, stop: () => talk.stop(chat), editLast: () => chatView.editLast(), settingsChanged, openTools: () => showSettings("tools"),
});

// ---- the chat

function open(next) {
  dropNotices();
  chat = next;
  chatView.show(chat);
  showFrame();
  composer.input.focus();
}

function send(text) {
  if (talk.isRunning(chat) || server.state !== "ready") return;
  dropNotices();
  chat.title ||= [...text.split("\n")[0]].slice(0, kTitleLetters).join("");
  chat.messages.push(newMessage("user", { content: text }));
  answer();
}

function answer() {
  talk.answer(chat);
  chatView.scrollToEnd();
}

/** Changes the messages and offers to undo the change. */
function change(said, act) {
  const changed = chat;
  const before = [...chat.messages];
  talk.stop(chat);
  act();
  store.put(chat);
  chatView.sync();
  notify(said, () => {
    talk.stop(changed);
    changed.messages = before;
    store.put(changed);
    open(changed);
  });
}

function edit(message, text, andAnswer) {
  const at = chat.messages.indexOf(message);
  if (text !== message.content || andAnswer) {
    const edited = { ...message, content: text };
    change(t("edited"), () => chat.messages.splice(at, andAnswer ? chat.messages.length : 1, edited));
  }
  chatView.sync();
  if (andAnswer) answer();
  chatView.focusMessage(at);
}

function regenerate(message) {
  const at = chat.messages.indexOf(message);
  change(t("regenerated"), () => chat.messages.splice(at));
  answer();
  chatView.focusMessage(at);
}

function remove(message) {
  const at = chat.messages.indexOf(message);
  change(t("removed"), () => chat.messages.splice(at, 1));
  chatView.focusMessage(at);
}

function results(message, texts) {
  texts.forEach((content, at) => {
    const { id, name } = message.tool_calls[at];
    chat.messages.push(newMessage("tool", { content, tool_call_id: id, name }));
  });
  answer();
}

// ---- all chats

function rename(renamed, title) {
  renamed.title = title;
  store.put(renamed);
  showFrame();
}

function removeChat(removed) {
  talk.stop(removed);
  store.remove(removed.id);
  if (removed === chat) open(newChat(lastSettings()));
  else showFrame();
  notify(t("chatRemoved"), () => {
    store.put(removed);
    open(removed);
  });
}

function removeAll() {
  for (const each of store.list()) {
    talk.stop(each);
    store.remove(each.id);
  }
  open(newChat(lastSettings()));
}

function download(chats) {
  const address = URL.createObjectURL(new Blob([exportChats(chats)], { type: "application/json" }));
  const name = chats.length === 1 ? `trireme-chat-${chats[0].id.slice(0, 8)}.json` : "trireme-chats.json";
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

async function upload(file) {
  try {
    const chats = importChats(await file.text());
    chats.forEach((each) => store.put(each));
    open(chats[0]);
    notify(t("imported", { count: chats.length }));
  } catch {
    notify(t("importFailed", { name: file.name }));
  }
}

// ---- around the chat

function settingsChanged() {
  keepSettings(chat.settings);
  if (chat.messages.length) store.put(chat);
  showFrame();
}

function showSettings(part = null) {
  const served = (server.models.find(({ id }) => id === chat.settings.model) ?? server.models[0])?.meta?.sampling;
  openSettings(chat.settings, served, settingsChanged, removeAll, part);
}

function showBanner() {
  const words = { connecting: "", ready: "", busy: "serverBusy", offline: "serverOffline", locked: "serverLocked" }[server.state];
  const banner = byId("banner");
  banner.hidden = words === "";
  if (banner.hidden) return banner.replaceChildren();
  const said = server.message ? make("span", { class: "said", text: server.message }) : null;
  const enter = make("button", { type: "button", class: "small-button", text: t("tokenTitle"), on: { click: () => server.connect() } });
  return banner.replaceChildren(icon("warning"), make("span", { text: t(words) }), ...[said, server.state === "locked" ? enter : null].filter(Boolean));
}

function showModels() {
  const select = byId("model");
  select.replaceChildren(...server.models.map(({ id }) => make("option", { value: id, text: id })));
  select.value = chat.settings.model;
  if (select.selectedIndex < 0) select.selectedIndex = 0;
  select.disabled = server.models.length < 2;
  byId("model-label").hidden = server.models.length === 0;
}

function showFrame() {
  session.set(kOpenKey, chat.id);
  const title = chat.title || t("newChat");
  byId("title").textContent = title;
  document.title = `${title} · Trireme`;
  showBanner();
  showModels();
  sideView.show(chat);
  composer.show({ settings: chat.settings, running: talk.isRunning(chat), ready: server.state === "ready" });
}

function speak(language) {
  showWords(language);
  chatView.show(chat);
  showFrame();
}

function key(event) {
  if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
  const writes = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "Escape" && sideView.isAbove()) sideView.toggle(false);
  else if (event.key === "Escape") talk.stop(chat);
  else if (event.key === "/" && !writes && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    composer.input.focus();
  }
}

function start() {
  for (const node of document.querySelectorAll("[data-icon]")) node.prepend(icon(node.dataset.icon));
  byId("theme").value = preferredTheme();
  byId("theme").addEventListener("change", ({ target }) => chooseTheme(target.value));
  byId("language").value = preferredLanguage();
  byId("language").addEventListener("change", ({ target }) => {
    chooseLanguage(target.value);
    speak(target.value);
  });
  byId("model").addEventListener("change", ({ target }) => {
    chat.settings.model = target.value;
    settingsChanged();
  });
  byId("open-settings").addEventListener("click", () => showSettings());
  byId("export-chats").addEventListener("click", () => download(store.list()));
  byId("import-chats").addEventListener("click", () => byId("import-file").click());
  byId("import-file").addEventListener("change", ({ target }) => {
    if (target.files[0]) upload(target.files[0]);
    target.value = "";
  });
  addEventListener("keydown", key);
  server.addEventListener("change", showFrame);
  store.addEventListener("full", () => notify(t("storageFull")));
  store.addEventListener("change", ({ detail: id }) => {
    if (id === chat.id && !talk.isRunning(chat)) chatView.show(chat = store.get(id) ?? newChat(lastSettings()));
    showFrame();
  });
  talk.addEventListener("change", ({ detail: { message, done } }) => {
    if (done || !message.stats.pieces) showFrame();
  });
  byId("app").hidden = false;
  speak(preferredLanguage());
  composer.input.focus();
  server.connect();
}

start();
