// Requests answers and stores them. Several chats may run at once, but each chat has at most one
// running answer.

import { newMessage } from "./chats.js";
import { toolsOf } from "./settings.js";
import { ServerError } from "./server.js";
import { addChunk, chunksOf } from "./stream.js";

const kMaxWaits = 5;  // retries if the server is busy
const kSaveMs = 2000;
const kLeavingMs = 2000;

function apiMessage(message) {
  const { role, content } = message;
  if (role === "user") return { role, content };
  if (role === "tool") return { role, content, tool_call_id: message.tool_call_id, name: message.name };
  const answer = { role, content };
  if (message.reasoning_content) answer.reasoning_content = message.reasoning_content;
  if (message.tool_calls?.length) {
    answer.tool_calls = message.tool_calls.map(({ id, ...call }) => ({ id, type: "function", function: call }));
  }
  return answer;
}

const saysSomething = (message) => message.role !== "assistant" || message.content || message.reasoning_content || message.tool_calls?.length;

/** Returns the body of POST /v1/chat/completions. */
export function requestOf(chat, models) {
  const { settings } = chat;
  const messages = chat.messages.filter(saysSomething).map(apiMessage);
  if (settings.system.trim()) messages.unshift({ role: "system", content: settings.system });
  const model = models.some(({ id }) => id === settings.model) ? settings.model : models[0]?.id;
  const body = { model, messages, stream: true, stream_options: { include_usage: true }, ...settings.numbers };
  const tools = toolsOf(settings.tools) ?? [];
  if (tools.length) {
    const named = tools.some((tool) => tool.function.name === settings.toolChoice);
    body.tools = tools;
    body.tool_choice = named ? { type: "function", function: { name: settings.toolChoice } } : settings.toolChoice;
  }
  if (settings.thinking !== "auto") body.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
  return body;
}

function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    });
  });
}

/** Sends "change" {chat, message, done} when a message has grown. */
export class Talk extends EventTarget {
  constructor(store, server) {
    super();
    this.store = store;
    this.server = server;
    this.running = new Map(); // chat id -> AbortController
    this.leftAt = -Infinity;
    for (const event of ["beforeunload", "pagehide"]) addEventListener(event, () => this.leave());
  }

  isRunning(chat) {
    return this.running.has(chat.id);
  }

  stop(chat) {
    this.running.get(chat.id)?.abort();
  }

  /** Saves unfinished answers before the window leaves the page and its connections end. */
  leave() {
    this.leftAt = performance.now();
    for (const id of this.running.keys()) {
      if (this.store.get(id)) this.store.put(this.store.get(id));
    }
  }

  changed(chat, message, done = false) {
    this.dispatchEvent(new CustomEvent("change", { detail: { chat, message, done } }));
  }

  /**
   * Adds an answer to the chat and updates it while it arrives. Never throws: an error is stored in
   * the message.
   */
  async answer(chat) {
    if (this.isRunning(chat)) return;
    const body = requestOf(chat, this.server.models);
    const message = newMessage("assistant", { stats: {} });
    const control = new AbortController();
    this.running.set(chat.id, control);
    chat.messages.push(message);
    this.save(chat);
    this.changed(chat, message);
    try {
      await this.receive(chat, message, ...(await this.request(chat, message, body, control.signal)));
      message.finish ??= "stop";
    } catch (error) {
      this.fail(message, error);
    }
    this.running.delete(chat.id);
    this.save(chat);
    this.changed(chat, message, true);
  }

  /**
   * Returns [response, start time]. If the queue is full (429), waits as long as the server says
   * and counts down in the message.
   */
  async request(chat, message, body, signal) {
    for (let waits = 0; ; ++waits) {
      try {
        const start = performance.now();
        return [await this.server.fetch("v1/chat/completions", { body, signal }), start];
      } catch (error) {
        if (error.status !== 429 || waits === kMaxWaits) throw error;
        for (let seconds = Math.ceil(error.retryAfter ?? 2); seconds > 0; --seconds) {
          message.waiting = seconds;
          this.changed(chat, message);
          await sleep(1000, signal);
        }
        delete message.waiting;
        this.changed(chat, message);
      }
    }
  }

  async receive(chat, message, response, start) {
    let saved = start;
    for await (const chunk of chunksOf(response)) {
      addChunk(message, chunk, start);
      this.changed(chat, message);
      if (performance.now() - saved > kSaveMs) {
        saved = performance.now();
        this.store.put(chat);
      }
    }
  }

  fail(message, error) {
    delete message.waiting;
    if (error.name === "AbortError") {
      message.finish = "stopped";
      return;
    }
    if (error.status === 0 && performance.now() - this.leftAt < kLeavingMs) {
      message.finish = "interrupted";
      return;
    }
    message.finish = "error";
    message.error = error instanceof ServerError ? `${error.status} ${error.message}` : `500 ${error.message}`;
    if (error.status === 0 || error.status === 503) this.server.connect();
  }

  save(chat) {
    chat.updated = Date.now();
    this.store.put(chat);
  }
}
