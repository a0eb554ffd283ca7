#include "text/chat/tool_turns.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.hpp"

namespace trireme::text {
namespace {

constexpr std::array<std::optional<bool>, 3> kThinking{std::nullopt, false, true};

ChatMessage message_with(Role role, std::string content) {
  ChatMessage message;
  message.role = role;
  message.content = std::move(content);
  return message;
}

/// Returns a question and `rounds` answers, each with a call of a tool and its results.
Conversation tool_rounds(std::size_t rounds, std::span<const std::string> results,
                         bool has_thought) {
  Conversation chat;
  chat.declares_tools = true;
  chat.tools = {R"({"type": "function", "function": {"name": "tool", "parameters": {}}})"};
  chat.messages.push_back(message_with(Role::user, "question"));
  for (std::size_t i = 0; i < rounds; ++i) {
    chat.messages.push_back(message_with(Role::assistant, "answer"));
    chat.messages.back().tool_calls = {{"tool", "{}"}};
    if (has_thought) chat.messages.back().reasoning = "thought";
    for (const std::string& result : results)
      chat.messages.push_back(message_with(Role::tool, result));
  }
  return chat;
}

/// Returns the end of the last answer in the list of turn ends, or null.
const TurnEnd* end_of_last_answer(const RenderedChat& chat) {
  if (chat.answers.empty()) return nullptr;
  const auto found = std::ranges::find_if(
      chat.ends, [&](const TurnEnd& end) { return end.token.end >= chat.answers.back().end; });
  return found == chat.ends.end() ? nullptr : &*found;
}

}  // namespace

ToolTurns::ToolTurns(ChatWriter writer) : writer_(std::move(writer)) {
  std::string reason = "the end of an answer is not a token of the tokenizer";
  if (const auto end = writer_.turn_end_id()) {
    end_ = *end;
    reason = find_reason();
    if (!reason.empty()) {  // Qwen3's template keeps only thoughts that are not empty
      has_thought_ = true;
      reason = find_reason();
    }
  }
  if (!reason.empty()) {
    fail(ErrorKind::usage,
         "The chat template {} cannot be used with tools: {}. Pack the prompts with another "
         "template, for example minimind-v3 or qwen3.",
         writer_.format().name, reason);
  }
  const std::string asked = writer_.render(tool_rounds(0, {}, false), std::nullopt, false).text;
  for (const auto thinking : kThinking) {
    const std::string text = writer_.render(tool_rounds(0, {}, false), thinking, true).text;
    headers_.push_back({thinking, text.substr(std::min(asked.size(), text.size()))});
  }
  std::ranges::stable_sort(headers_, [](const Header& one, const Header& other) {
    return one.text.size() > other.text.size();
  });
}

std::optional<RenderedChat> ToolTurns::after_answer(std::size_t rounds,
                                                    std::span<const std::string> results,
                                                    std::optional<bool> thinking) const {
  Conversation chat = tool_rounds(rounds, results, has_thought_);
  const RenderedChat whole = writer_.render(chat, thinking, true);
  chat.messages.resize(chat.messages.size() - results.size());
  const RenderedChat answered = writer_.render(chat, std::nullopt, false);
  const TurnEnd* const end = end_of_last_answer(answered);
  if (end == nullptr) return std::nullopt;
  // In a Jinja template, the end of a call may seem to belong to the end of the answer.
  const std::string_view past = std::string_view(answered.text).substr(0, end->token.end);
  const std::string end_text = writer_.turn_end_text();
  if (!past.ends_with(end_text) || !whole.text.starts_with(past)) return std::nullopt;
  const std::size_t begin = past.size() - end_text.size();
  RenderedChat rest;
  rest.text = whole.text.substr(begin);
  for (const TextRange& content : whole.contents)
    if (content.begin >= begin)
      rest.contents.push_back({content.begin - begin, content.end - begin});
  return rest;
}

std::string ToolTurns::find_reason() const {
  const std::vector<std::string> results{"first result", "second result"};
  const auto ask_thought = has_thought_ ? std::optional(true) : std::nullopt;
  try {
    const std::string prompt = writer_.render(tool_rounds(0, {}, false), ask_thought, true).text;
    if (!writer_.render(tool_rounds(1, results, has_thought_), std::nullopt, true)
             .text.starts_with(prompt))
      return "an answer changes the text of its prompt";
    for (const auto thinking : kThinking) {
      const auto first = after_answer(1, results, thinking);
      const auto third = after_answer(3, results, thinking);
      if (!first || !third) return "the results of tools change the text of earlier turns";
      if (first->text != third->text) return "the text after an answer depends on earlier turns";
      const auto is_written = [&](const std::string& result) {
        return std::ranges::any_of(first->contents, [&](const TextRange& content) {
          const auto text = std::string_view(first->text).substr(content.begin);
          return text.substr(0, content.end - content.begin).find(result) != std::string_view::npos;
        });
      };
      if (!std::ranges::all_of(results, is_written))
        return "it does not write the results of tools";
      const std::vector<std::uint32_t> ids = writer_.encode(*first);
      if (ids.empty() || ids.front() != end_)
        return "the end of an answer is not one token in the encoded text";
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    return formatted("it refuses a conversation with tools ({})", error.what());
  }
  return "";
}

std::vector<std::uint32_t> ToolTurns::results(std::span<const std::string> results,
                                              std::optional<bool> thinking) const {
  const auto rest = after_answer(1, results, thinking);
  TRIREME_ASSERT(rest);
  std::vector<std::uint32_t> ids = writer_.encode(*rest);
  TRIREME_ASSERT(!ids.empty() && ids.front() == end_);
  ids.erase(ids.begin());
  return ids;
}

std::optional<bool> ToolTurns::thinking_of(std::string_view prompt) const {
  for (const Header& header : headers_)
    if (prompt.ends_with(header.text)) return header.thinking;
  fail(ErrorKind::data,
       "A prompt does not end with the header of an answer of the chat template {}. Pack the "
       "prompts again.",
       writer_.format().name);
}

}  // namespace trireme::text
