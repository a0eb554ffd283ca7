#include "text/chat/own_format.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace trireme::text {
namespace {

struct Sample {
  std::vector<std::string_view> words;  // the Jinja text has one of them, or the sample is skipped
  Conversation chat;
};

Conversation sample_of(std::initializer_list<std::pair<Role, std::string>> turns) {
  Conversation chat;
  for (const auto& [role, content] : turns) {
    chat.messages.emplace_back();
    chat.messages.back().role = role;
    chat.messages.back().content = content;
  }
  return chat;
}

std::vector<Sample> sample_chats() {
  using enum Role;
  Sample thoughts{{"reasoning_content", "</think>"},
                  sample_of({{user, "q"},
                             {assistant, "a"},
                             {user, "r"},
                             {assistant, "<think>\nt\n</think>\n\nb"},
                             {user, "s"},
                             {assistant, "c"},
                             {assistant, "d"}})};
  thoughts.chat.messages[1].reasoning = "t";
  thoughts.chat.messages[5].reasoning = "\nu\n";
  Sample calls{
      {"tools"},
      sample_of(
          {{system, "s"}, {user, "q"}, {assistant, "x"}, {tool, "1"}, {tool, "2"}, {user, "r"}})};
  calls.chat.declares_tools = true;
  calls.chat.tools = {R"({"type": "function", "function": {"name": "f", "parameters": {}}})"};
  calls.chat.messages[2].tool_calls = {{"f", R"({"a": 1})"}, {"g", "{}"}};
  Sample tools = calls;
  tools.chat.messages = sample_of({{user, "q"}}).messages;
  return {{{}, sample_of({{user, " q \n"}})},
          {{},
           sample_of({{system, "s "},
                      {user, "q"},
                      {assistant, "\n a "},
                      {system, "t"},
                      {user, "r"},
                      {assistant, "b"}})},
          thoughts,
          calls,
          tools};
}

bool writes_same(const ChatTemplate& own, const ChatTemplate& named, std::string_view jinja) {
  const auto has = [&](std::string_view word) {
    return jinja.find(word) != std::string_view::npos;
  };
  for (const Sample& sample : sample_chats()) {
    if (!sample.words.empty() && std::ranges::none_of(sample.words, has)) continue;
    for (const auto thinking :
         std::initializer_list<std::optional<bool>>{std::nullopt, false, true}) {
      const RenderOptions options{.begin_token = "<s>",
                                  .end_token = "</s>",
                                  .generation_prompt = true,
                                  .thinking = thinking};
      if (own.render(sample.chat, options).text != named.render(sample.chat, options).text)
        return false;
    }
  }
  return true;
}

/// Returns work(). If it throws Error(data), returns the message in `refusal` and a default value.
template <class Work>
auto unless_refused(std::string& refusal, const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    refusal = error.what();
    return {};
  }
}

}  // namespace

OwnFormat own_chat_format(const std::string& jinja, std::string_view where) {
  OwnFormat own;
  own.format = unless_refused(own.refusal, [&] { return jinja_chat_template(jinja, where); });
  if (!own.refusal.empty()) {
    const ChatTemplate* near = nearest_chat_template(jinja);
    if (near != nullptr) own.format = shared_chat_template(near->name);
    return own;
  }
  for (const ChatTemplate& named : chat_templates()) {
    std::string refusal;  // the Jinja text refuses a sample, so it is not the same format
    if (unless_refused(refusal, [&] { return writes_same(*own.format, named, jinja); }))
      return {shared_chat_template(named.name)};
  }
  return own;
}

std::string refusal_note(const OwnFormat& own) {
  if (own.refusal.empty() || own.format == nullptr) return own.refusal;
  return formatted(
      "{}\nThe chat format {} is used instead. It has the same markers, but may write other text. "
      "--chat-template selects another one",
      own.refusal, own.format->name);
}

}  // namespace trireme::text
