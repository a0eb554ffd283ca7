// Chats, kept in this browser: one entry of localStorage each, so that two windows change different chats without loss.

import { local } from "./kept.js";
import { readSettings } from "./settings.js";

const kPrefix = "trireme.chat.";
const kFormat = "trireme-chats";
const kRoles = ["user", "assistant", "tool"];

/** Not crypto.randomUUID: browsers have that only for pages of this machine or over TLS. */
export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(10)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function newChat(settings) {
  const now = Date.now();
  return { id: newId(), title: "", created: now, updated: now, settings: readSettings(settings), messages: [] };
}

export function newMessage(role, fields) {
  return { id: newId(), role, created: Date.now(), content: "", ...fields };
}

const textOf = (value) => (typeof value === "string" ? value : "");

function contentOf(value) {
  if (!Array.isArray(value)) return textOf(value);
  return value.map((part) => textOf(part?.text)).join("");
}

function readCall(value) {
  const call = value?.function ?? value;
  const given = call?.arguments;
  return { id: textOf(value?.id) || newId(), name: textOf(call?.name), arguments: typeof given === "string" ? given : JSON.stringify(given ?? {}) };
}

function readMessage(value) {
  if (!kRoles.includes(value?.role)) return null;
  const message = newMessage(value.role, { content: contentOf(value.content) });
  if (textOf(value.id)) message.id = value.id;
  for (const name of ["reasoning_content", "tool_call_id", "name", "finish", "error", "model"]) {
    if (textOf(value[name])) message[name] = value[name];
  }
  if (Array.isArray(value.tool_calls)) message.tool_calls = value.tool_calls.map(readCall);
  if (value.role === "assistant") {
    message.finish ??= message.error ? "error" : "interrupted"; // the page was left while the answer came
    message.stats = {};
    for (const [name, number] of Object.entries(value.stats ?? {})) {
      if (Number.isFinite(number)) message.stats[name] = number;
    }
  }
  return message;
}

/** A chat from anything that was stored or imported (a record of training data counts), or null if it has no messages. */
export function readChat(value) {
  const list = value?.messages ?? value?.conversations;
  if (!Array.isArray(list)) return null;
  const chat = newChat(value.settings);
  const system = list.find((message) => message?.role === "system");
  if (system && !chat.settings.system) chat.settings.system = contentOf(system.content);
  if (textOf(value.id)) chat.id = value.id;
  chat.title = textOf(value.title);
  for (const name of ["created", "updated"]) {
    if (Number.isFinite(value[name])) chat[name] = value[name];
  }
  chat.messages = list.map(readMessage).filter(Boolean);
  return chat;
}

/** The text of a file of chats. */
export function exportChats(chats) {
  return JSON.stringify({ format: kFormat, version: 1, chats }, null, 1);
}

/** The chats of a file: one that was exported, a single chat, or a list; each under a new name. Throws if there are none. */
export function importChats(text) {
  const value = JSON.parse(text);
  const list = Array.isArray(value) ? value : (value?.chats ?? [value]);
  const chats = Array.isArray(list) ? list.map(readChat).filter(Boolean) : [];
  if (!chats.length) throw new Error("no chats");
  return chats.map((chat) => ({ ...chat, id: newId() }));
}

/** Sends "change" when another window has changed a chat, "full" when the browser keeps no more. */
export class ChatStore extends EventTarget {
  constructor() {
    super();
    this.chats = new Map();
    for (const key of local.keys()) this.read(key, local.get(key));
    addEventListener("storage", (event) => {
      if (event.key === null) this.chats.clear();
      else if (!this.read(event.key, event.newValue)) return;
      this.dispatchEvent(new CustomEvent("change", { detail: event.key?.slice(kPrefix.length) }));
    });
  }

  read(key, text) {
    if (!key.startsWith(kPrefix)) return false;
    const id = key.slice(kPrefix.length);
    try {
      const chat = readChat(JSON.parse(text));
      if (chat) this.chats.set(id, { ...chat, id });
      else this.chats.delete(id);
    } catch {
      this.chats.delete(id);
    }
    return true;
  }

  /** Newest first. */
  list() {
    return [...this.chats.values()].sort((one, other) => other.updated - one.updated);
  }

  get(id) {
    return this.chats.get(id) ?? null;
  }

  put(chat) {
    this.chats.set(chat.id, chat);
    if (!local.set(kPrefix + chat.id, JSON.stringify(chat))) this.dispatchEvent(new CustomEvent("full"));
  }

  remove(id) {
    this.chats.delete(id);
    local.remove(kPrefix + id);
  }
}
