#include "text/chat/header_templates.hpp"

#include <algorithm>

#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

bool has_system(const Conversation& conversation) {
  return !conversation.messages.empty() && conversation.messages[0].role == Role::system;
}

void add_answer_text(std::string_view content, const RenderOptions& options, RenderedChat& out) {
  options.drop_empty_think ? out.content_without(kEmptyThink, content) : out.content(content);
}

/// Writes the turns of minimind-v1 and -v2: a user turn ends with the header of the answer. Tools,
/// tool results, calls and later system messages are left out.
void add_s_turns(const Conversation& conversation, const RenderOptions& options,
                 RenderedChat& out) {
  for (const ChatMessage& message : conversation.messages) {
    if (message.role == Role::user) {
      out.fixed("<s>user\n").content(message.content).turn_end("</s>", "\n");
      out.header("<s>assistant\n");
    } else if (message.role == Role::assistant) {
      const std::size_t begin = out.text.size();
      add_answer_text(message.content, options, out);
      out.turn_end("</s>", "\n");
      out.answer_since(begin, message);
    }
  }
}

/// Returns true for white space of Python's str.strip.
bool is_python_space(std::uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::string_view trimmed(std::string_view text) {
  const auto starts_with_space = [](std::string_view rest, std::size_t& length) {
    return is_python_space(utf8_decode(rest.data(), length));
  };
  std::size_t length = 0;
  while (!text.empty() && starts_with_space(text, length)) text.remove_prefix(length);
  while (!text.empty()) {
    const std::size_t last = utf8_last_start(text);
    if (!starts_with_space(text.substr(last), length)) break;
    text = text.substr(0, last);
  }
  return text;
}

}  // namespace

RenderedChat render_minimind_v1(const Conversation& conversation, const RenderOptions& options) {
  RenderedChat out;
  if (has_system(conversation)) out.content(conversation.messages[0].content);
  add_s_turns(conversation, options, out);
  return out;
}

RenderedChat render_minimind_v2(const Conversation& conversation, const RenderOptions& options) {
  RenderedChat out;
  out.fixed("<s>system\n");
  if (has_system(conversation)) {
    out.content(conversation.messages[0].content);
  } else {
    out.fixed(kMinimindV2System);
  }
  out.turn_end("</s>", "\n");
  add_s_turns(conversation, options, out);
  return out;
}

RenderedChat render_llama3(const Conversation& conversation, const RenderOptions& options) {
  constexpr std::string_view kAnswer = "<|start_header_id|>assistant<|end_header_id|>\n\n";
  RenderedChat out;
  out.fixed(options.begin_token.empty() ? "<|begin_of_text|>" : options.begin_token);
  for (const ChatMessage& message : conversation.messages) {
    const bool answers = message.role == Role::assistant;
    if (answers) {
      out.header(kAnswer);
    } else {
      out.fixed("<|start_header_id|>").fixed(role_name(message.role));
      out.fixed("<|end_header_id|>\n\n");
    }
    const std::size_t begin = out.text.size();
    if (answers) {
      add_answer_text(trimmed(message.content), options, out);
    } else {
      out.content(trimmed(message.content));
    }
    out.turn_end("<|eot_id|>", "");
    if (answers) out.answer_since(begin, message);
  }
  if (options.generation_prompt) out.header(kAnswer);
  return out;
}

RenderedChat render_plain(const Conversation& conversation, const RenderOptions& options) {
  RenderedChat out;
  for (const ChatMessage& message : conversation.messages) {
    const std::size_t begin = out.text.size();
    if (message.role == Role::assistant) {
      add_answer_text(message.content, options, out);
      out.turn_end(options.end_token, "\n");
      out.answer_since(begin, message);
    } else {
      out.content(message.content).fixed("\n");
    }
  }
  return out;
}

}  // namespace trireme::text
