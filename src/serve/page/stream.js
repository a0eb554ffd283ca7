// Reads a streamed response into a message.

import { ServerError } from "./server.js";

/**
 * Yields the data of each server-sent event. Comments, which keep the connection open, are skipped.
 */
async function* eventsOf(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let data = [];
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : new ServerError(0, "");
    });
    const lines = (rest + (done ? decoder.decode() : decoder.decode(value, { stream: true }))).split("\n");
    rest = lines.pop();
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
      if (line === "" && data.length) {
        yield data.join("\n");
        data = [];
      }
    }
    if (done) return;
  }
}

/** HTTP status that is reported for an error inside a stream. The stream itself has status 200. */
const STATUS_OF_ERROR = { timeout_error: 408, rate_limit_error: 429, unavailable_error: 503 };

/**
 * Yields the chunks up to [DONE]. Throws ServerError if the server reports an error or the stream
 * ends without [DONE].
 */
export async function* chunksOf(response) {
  for await (const event of eventsOf(response)) {
    if (event === "[DONE]") return;
    const chunk = JSON.parse(event);
    if (chunk.error) throw new ServerError(STATUS_OF_ERROR[chunk.error.type] ?? 500, chunk.error.message ?? "");
    yield chunk;
  }
  throw new ServerError(0, "");
}

function addCalls(message, calls) {
  message.tool_calls ??= [];
  for (const piece of calls) {
    const at = Math.min(piece.index ?? Infinity, message.tool_calls.length);
    message.tool_calls[at] ??= { id: "", name: "", arguments: "" };
    const call = message.tool_calls[at];
    if (piece.id) call.id = piece.id;
    call.name += piece.function?.name ?? "";
    call.arguments += piece.function?.arguments ?? "";
  }
}

/**
 * Adds a chunk to a message and updates `stats`: times in ms since `startMs`, and chunks until the
 * server reports tokens.
 */
export function addChunk(message, chunk, startMs) {
  const stats = message.stats;
  const now = performance.now() - startMs;
  const choice = chunk.choices?.[0];
  const delta = choice?.delta ?? {};
  const calls = Array.isArray(delta.tool_calls) ? delta.tool_calls : [];
  if (delta.content || delta.reasoning_content || calls.length) {
    stats.firstMs ??= now;
    stats.lastMs = now;
    stats.pieces = (stats.pieces ?? 0) + 1;
  }
  if (delta.reasoning_content) message.reasoning_content = (message.reasoning_content ?? "") + delta.reasoning_content;
  if (delta.content) {
    if (message.reasoning_content) stats.thoughtMs ??= now - stats.firstMs;
    message.content += delta.content;
  }
  if (calls.length) addCalls(message, calls);
  if (choice?.finish_reason) message.finish = choice.finish_reason;
  if (chunk.model) message.model = chunk.model;
  if (chunk.usage) {
    stats.promptTokens = chunk.usage.prompt_tokens;
    stats.tokens = chunk.usage.completion_tokens;
  }
  if (chunk.timings?.predicted_ms > 0) {
    stats.tokensPerSecond = (1000 * chunk.timings.predicted_n) / chunk.timings.predicted_ms;
  }
}

/**
 * Returns tokens per second: the server's figure, otherwise measured between the first and last
 * chunk; null while unknown.
 */
export function tokensPerSecond({ tokensPerSecond: served, tokens, pieces, firstMs, lastMs }) {
  if (served) return served;
  const count = (tokens ?? pieces ?? 0) - 1;
  return count > 0 && lastMs > firstMs ? (1000 * count) / (lastMs - firstMs) : null;
}
