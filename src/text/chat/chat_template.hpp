#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/conversation.hpp"
#include "text/chat/rendered.hpp"

namespace trireme::text {

/// The method by which MiniMind's trainer for a template finds the training targets
/// (chat_targets.hpp).
enum class MaskSearch {
  last_answer,   // V1: all tokens after the last "assistant" of a header, including its newline
  after_line,    // V2: from the second token after "assistant" to one past the end token
  whole_header,  // V2.5, V3: from the end of the header to the end token and newline
  every_answer,  // not from MiniMind: each answer with its end token and newline
};

/// The form in which a chat format writes and reads tools and calls.
enum class CallForm {
  none,  // not supported
  qwen,  // <tool_call> JSON </tool_call>
};

/// Decides if RenderOptions::thinking changes the generation prompt, and gives the default.
enum class ThinkingSwitch { none, on_by_default, off_by_default };

struct RenderOptions {
  std::string begin_token =
      {};  // BOS token of the tokenizer, for templates that write one; empty: the usual one
  std::string end_token = {};      // EOS token of the tokenizer, for `plain`; empty if it has none
  bool drop_empty_think = false;   // remove empty thoughts
  bool generation_prompt = false;  // end with the header of the next answer
  bool finds_answers = true;       // false: RenderedChat::answers and ends are not needed
  std::optional<bool> thinking = {};  // for the generation prompt; none: template's choice
  bool with_date = false;             // a Jinja template may write the date of today (strftime_now)
};

/// A named chat format. The text equals, character for character, the result of apply_chat_template
/// (transformers) with the original Jinja template.
///
///   minimind-v1, -v2     <s>user..</s>; the user turn ends with the header of the answer; no tools
///   minimind-v2.5, -v3   ChatML with tools; V3 writes thoughts into every answer
///   chatml               ChatML; tools, calls and thoughts as in Qwen, if there are any
///   qwen3                Qwen3: thoughts only after the last question
///   llama3               Llama-3 headers; contents are trimmed; no tools
///   plain                contents only, each with a newline; answers with the end token
/// Sources: jingyaogong/minimind (commits 6e9cd28, 7da201a, 83e52f6, d65ef2c), Qwen/Qwen3-8B and
/// meta-llama/Meta-Llama-3-8B-Instruct, `chat_template` of their tokenizer_config.json.
struct ChatTemplate {
  std::string name;
  std::vector<std::string_view> markers;  // texts that should be single tokens of the tokenizer
  MaskSearch search;
  CallForm calls;
  ThinkingSwitch thinking;
  std::function<RenderedChat(const Conversation& conversation, const RenderOptions& options)>
      render;
  std::function<std::string()> jinja;  // Jinja template with the same result (jinja.cpp)
};

/// Returns all named formats.
std::span<const ChatTemplate> chat_templates();

/// Returns a format by name; null if there is none.
const ChatTemplate* find_chat_template(std::string_view name);

/// Returns a format by name. Throws Error(usage) that lists the names.
const ChatTemplate& chat_template(std::string_view name);

/// Returns the format that is nearest to a tokenizer's chat template `jinja`: the one with this
/// text, otherwise the one with the same markers, which may write other text (own_chat_format
/// compares the texts). Null if the markers are unknown.
const ChatTemplate* nearest_chat_template(std::string_view jinja);

/// Returns "minimind-v1, minimind-v2, ...".
std::string chat_template_names();

}  // namespace trireme::text
