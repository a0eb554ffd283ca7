// Client of the server that delivered this page. Addresses are relative, so that the page works
// behind a tunnel or a proxy path.

import { session } from "./storage.js";

const kTokenKey = "trireme.token";
const kRetryMs = [500, 1000, 2000, 5000];

/**
 * An HTTP error, or no response (status 0). `message` is the server's text; `retryAfter` is in
 * seconds.
 */
export class ServerError extends Error {
  constructor(status, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

async function errorOf(response) {
  const text = await response.text().catch(() => "");
  let message = "";
  try {
    const { error } = JSON.parse(text);
    message = typeof error === "string" ? error : (error?.message ?? "");
  } catch {
    message = text.slice(0, 300);
  }
  const seconds = Number.parseFloat(response.headers.get("Retry-After"));
  return new ServerError(response.status, message, Number.isFinite(seconds) ? seconds : null);
}

/**
 * The connection to the server. Sends "change" when `state` or `models` change. `state` is
 * "connecting", "ready", "busy" (starting or draining), "offline" or "locked".
 */
export class Server extends EventTarget {
  /** `askToken(wrong)` resolves to a token, or to null if the user enters none. */
  constructor(askToken) {
    super();
    this.askToken = askToken;
    this.asking = null;
    this.state = "connecting";
    this.message = "";
    this.models = [];
    this.timer = 0;
  }

  get token() {
    return session.get(kTokenKey);
  }

  set(state, message = "") {
    if (this.state === state && this.message === message) return;
    this.state = state;
    this.message = message;
    this.dispatchEvent(new CustomEvent("change"));
  }

  /**
   * Polls until the server is ready, then reads its models. Called again after the connection was
   * lost.
   */
  async connect(attempt = 0) {
    clearTimeout(this.timer);
    try {
      await this.fetch("health");
      const { data } = await (await this.fetch("v1/models")).json();
      this.models = Array.isArray(data) ? data.filter((model) => typeof model?.id === "string") : [];
      this.state = "";  // the models are new, so listeners must be informed in any case
      this.set("ready");
    } catch (error) {
      if (error.status === 401) return this.set("locked", error.message);
      this.set(error.status === 0 ? "offline" : "busy", error.message);
      const wait = kRetryMs[Math.min(attempt, kRetryMs.length - 1)];
      this.timer = setTimeout(() => this.connect(attempt + 1), wait);
    }
  }

  /**
   * Sends a request. Asks for a token if one is needed or wrong. Throws ServerError; AbortError if
   * cancelled.
   */
  async fetch(path, { body = null, signal = null } = {}) {
    for (;;) {
      const token = this.token;
      const response = await this.send(path, body, signal, token);
      if (response.ok) return response;
      const error = await errorOf(response);
      if (response.status !== 401) throw error;
      if (this.token === token && !(await this.newToken(token !== null))) throw error;
    }
  }

  async send(path, body, signal, token) {
    const headers = { Accept: "application/json, text/event-stream" };
    if (body) headers["Content-Type"] = "application/json";
    if (token) headers.Authorization = `Bearer ${token}`;
    try {
      return await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServerError(0, "");
    }
  }

  /** Asks only once, even if several requests need the token at the same time. */
  async newToken(wrong) {
    this.asking ??= this.askToken(wrong).finally(() => { this.asking = null; });
    const token = await this.asking;
    if (token === null) return false;
    session.set(kTokenKey, token);
    return true;
  }
}
