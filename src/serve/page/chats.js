// Chats in localStorage of this browser. Each chat has its own entry, so two windows can change
// different chats without loss.

import { local } from "./storage.js";
import { readSettings } from "./settings.js";

const kPrefix = "trireme.chat.";
const kFormat = "trireme-chats";
const kRoles = ["user", "assistant", "tool"];

/** Returns a random id. crypto.randomUUID exists only for pages from localhost or over TLS. */
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
    // the page was closed during the answer
    message.finish ??= message.error ? "error" : "interrupted";
    message.stats = {};
    for (const [name, number] of Object.entries(value.stats ?? {})) {
      if (Number.isFinite(number)) message.stats[name] = number;
    }
  }
  return message;
}

/**
 * Converts a stored or imported value to a chat; null if it has no messages. The value may also be
 * a record of training data.
 */
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

/** Returns the content of an export file. */
export function exportChats(chats) {
  return JSON.stringify({ format: kFormat, version: 1, chats }, null, 1);
}

/**
 * Reads an export file, a single chat or a list of chats. Each chat gets a new id. Throws if there
 * is no chat.
 */
export function importChats(text) {
  const value = JSON.parse(text);
  const list = Array.isArray(value) ? value : (value?.chats ?? [value]);
  const chats = Array.isArray(list) ? list.map(readChat).filter(Boolean) : [];
  if (!chats.length) throw new Error("no chats");
  return chats.map((chat) => ({ ...chat, id: newId() }));
}

/**
 * Stores chats. Sends "change" when another window has changed a chat, "full" when the browser's
 * storage is full.
 */
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

  /** Returns the chats, newest first. */
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
