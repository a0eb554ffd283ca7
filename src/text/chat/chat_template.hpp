#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/conversation.hpp"
#include "text/chat/rendered.hpp"

namespace trireme {

/// How MiniMind's trainers of a template's time find what is trained (chat_targets.hpp).
enum class MaskSearch {
  last_answer,   // V1: all after the last "assistant" of a header, its line end included
  after_line,    // V2: from the second token after "assistant" to one past the end token
  whole_header,  // V2.5, V3: from the header's end to the end token and line end
  every_answer,  // not MiniMind's: each answer with its end token and line end
};

/// How a format writes tools and calls, and so how an answer's calls are read.
enum class CallForm {
  none,  // not at all
  qwen,  // <tool_call> JSON </tool_call>
};

/// Whether RenderOptions::thinking changes the generation prompt, and what holds without it.
enum class ThinkingSwitch { none, on_by_default, off_by_default };

struct RenderOptions {
  std::string begin_token =
      {};                      // of the tokenizer, for templates that write one; "" means the usual
  std::string end_token = {};  // of the tokenizer, for `plain`; "" if it has none
  bool drop_empty_think = false;      // leave out empty thoughts
  bool generation_prompt = false;     // close with what asks the model for its turn
  std::optional<bool> thinking = {};  // in the generation prompt; none: the template's default
};

/// A named chat format. Each gives, character for character, what the Jinja template it restates
/// gives in transformers' apply_chat_template.
///
///   minimind-v1, -v2     <s>user..</s>; the user turn announces the answer; no tools
///   minimind-v2.5, -v3   ChatML with tools; V3 writes thoughts into every answer
///   chatml               ChatML; tools, calls and thoughts as Qwen writes them, if there are any
///   qwen3                Qwen3: thoughts only after the last question
///   llama3               Llama-3 headers; contents are trimmed; no tools
///   plain                contents alone, each with a line end, answers with the end token
/// Sources: jingyaogong/minimind (commits 6e9cd28, 7da201a, 83e52f6, d65ef2c), Qwen/Qwen3-8B and
/// meta-llama/Meta-Llama-3-8B-Instruct, `chat_template` of their tokenizer_config.json.
struct ChatTemplate {
  const char* name;
  std::vector<std::string_view> markers;  // what should be single tokens of the tokenizer
  MaskSearch search;
  CallForm calls;
  ThinkingSwitch thinking;
  RenderedChat (*render)(const Conversation& conversation, const RenderOptions& options);
  std::string (*jinja)();  // the text that renders the same in apply_chat_template (jinja.cpp)
};

/// Throws Error(usage) that lists the names.
const ChatTemplate& chat_template(std::string_view name);

/// The format that renders as `jinja`, a tokenizer's chat template, does: that of our own text, else
/// the one with its markers, which may differ in a default system message. Null: none has them.
const ChatTemplate* nearest_chat_template(std::string_view jinja);

/// "minimind-v1, minimind-v2, ..."
std::string chat_template_names();

}  // namespace trireme
