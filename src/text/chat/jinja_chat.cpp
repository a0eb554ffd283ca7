#include "text/chat/jinja_chat.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/hash/xxh3.hpp"
#include "text/jinja/jinja_template.hpp"

namespace trireme::text {
namespace {

using jinja::JinjaArguments;
using jinja::JinjaDict;
using jinja::JinjaList;
using jinja::JinjaOutput;
using jinja::JinjaValue;
using jinja::MarkedText;

constexpr std::string_view kBlank = " \t\r\n";

JinjaValue key(std::string_view name) {
  return JinjaValue::text(name);
}

JinjaValue of_record(const std::string& text) {
  return MarkedText::of_record(text);
}

/// Returns parsed JSON, or the text if it is not JSON.
JinjaValue of_json(const std::string& json) {
  return jinja::jinja_from_json(json).value_or(of_record(json));
}

JinjaValue call_value(const ToolCall& call) {
  const JinjaValue parsed = of_json(call.arguments);
  // A template expects an object; a text that holds another value stays a text.
  const JinjaValue arguments = parsed.as_dict() != nullptr ? parsed : of_record(call.arguments);
  return JinjaDict{{key("type"), key("function")},
                   {key("function"),
                    JinjaDict{{key("name"), of_record(call.name)}, {key("arguments"), arguments}}}};
}

JinjaValue message_value(const ChatMessage& message) {
  JinjaDict dict{{key("role"), key(role_name(message.role))},
                 {key("content"), of_record(message.content)}};
  if (message.reasoning) dict.emplace_back(key("reasoning_content"), of_record(*message.reasoning));
  if (!message.tool_calls.empty()) {
    JinjaList calls;
    for (const ToolCall& call : message.tool_calls) calls.push_back(call_value(call));
    dict.emplace_back(key("tool_calls"), std::move(calls));
  }
  return dict;
}

JinjaValue today(const JinjaArguments& given) {
  if (given.positional.size() != 1 || given.positional[0].as_text() == nullptr)
    jinja::jinja_fail("strftime_now() takes a format");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 256> text{};
  const std::size_t length = std::strftime(text.data(), text.size(),
                                           given.positional[0].as_text()->bytes().c_str(), &local);
  return JinjaValue::text({text.data(), length});
}

/// Accepts a list too: older versions of transformers write several named templates as a list.
std::string default_jinja(const Json& templates) {
  if (templates.is_string()) return templates.get<std::string>();
  if (!templates.is_array()) return "";
  for (const Json& one : templates) {
    if (one.is_object() && one.value("name", Json()) == "default" &&
        one.value("template", Json()).is_string())
      return one.at("template").get<std::string>();
  }
  return "";
}

/// Renders conversations with one template.
class JinjaChat {
 public:
  JinjaChat(const std::string& jinja, std::string_view where) : template_(jinja, where) {}

  [[nodiscard]] RenderedChat render(const Conversation& conversation,
                                    const RenderOptions& options) const {
    const std::size_t size = conversation.messages.size();
    const JinjaOutput output = run(conversation, size, options, options.generation_prompt);
    RenderedChat chat;
    chat.text = output.text.bytes();
    for (std::size_t begin = 0; begin < chat.text.size();) {
      std::size_t end = begin + 1;
      while (end < chat.text.size() && output.text.is_record(end) == output.text.is_record(begin))
        ++end;
      if (output.text.is_record(begin)) chat.contents.push_back({begin, end});
      begin = end;
    }
    if (options.generation_prompt || !options.finds_answers) return chat;
    if (template_.has_generation()) {
      add_generations(conversation, output, chat);
    } else {
      add_answers(conversation, options, output, chat);
    }
    return chat;
  }

 private:
  [[nodiscard]] JinjaOutput run(const Conversation& conversation, std::size_t num_messages,
                                const RenderOptions& options, bool generation_prompt) const {
    JinjaList messages;
    for (std::size_t i = 0; i < num_messages; ++i)
      messages.push_back(message_value(conversation.messages[i]));
    JinjaList tools;
    for (const std::string& tool : conversation.tools) tools.push_back(of_json(tool));
    std::map<std::string, JinjaValue> variables = {
        {"messages", std::move(messages)},
        {"tools", tools.empty() ? JinjaValue(nullptr) : JinjaValue(std::move(tools))},
        {"documents", nullptr},
        {"add_generation_prompt", generation_prompt}};
    if (!options.begin_token.empty()) variables["bos_token"] = key(options.begin_token);
    if (!options.end_token.empty()) variables["eos_token"] = key(options.end_token);
    for (const char* name : {"enable_thinking", "open_thinking"})  // Qwen3, MiniMind
      if (options.thinking) variables[name] = *options.thinking;
    if (options.with_date) variables["strftime_now"] = jinja::JinjaFunction(today);
    return template_.render(std::move(variables));
  }

  /// Adds an answer with the text behind its last character of the record as end token.
  static void add_answer(const JinjaOutput& output, std::size_t begin, std::size_t end,
                         RenderedChat& chat) {
    std::size_t token = end;
    while (token > begin && !output.text.is_record(token - 1)) --token;
    if (token == begin) token = end;  // the answer has no text
    while (token < end && kBlank.find(chat.text[token]) != std::string_view::npos) ++token;
    chat.answers.push_back({begin, end});
    chat.ends.push_back({{token, end}, end < chat.text.size() && chat.text[end] == '\n'});
  }

  static void add_generations(const Conversation& conversation, const JinjaOutput& output,
                              RenderedChat& chat) {
    chat.touching_is_target = true;
    std::vector<bool> targets;
    for (const ChatMessage& message : conversation.messages)
      if (message.role == Role::assistant) targets.push_back(message.is_target);
    const bool matches = targets.size() == output.generations.size();
    if (!matches && std::ranges::find(targets, false) != targets.end())
      fail(ErrorKind::data,
           "the chat template wrote {} generation blocks for {} answers, so the answers without "
           "loss are unknown. Give --train-on all and remove the weights of the messages",
           output.generations.size(), targets.size());
    for (std::size_t i = 0; i < output.generations.size(); ++i) {
      const auto [begin, end] = output.generations[i];
      if (begin < end && (!matches || targets[i])) add_answer(output, begin, end, chat);
    }
  }

  void add_answers(const Conversation& conversation, const RenderOptions& options,
                   const JinjaOutput& output, RenderedChat& chat) const {
    const auto check_prefix = [&](const std::string& part, std::size_t at, const char* what) {
      if (chat.text.starts_with(part)) return;
      fail(ErrorKind::data,
           "message {}: the chat template changes the text before the answer when later messages "
           "follow ({} the answer), so its tokens are unknown. Mark the answers with "
           "{{% generation %}} in the template, or give --train-on last",
           at + 1, what);
    };
    const std::size_t size = conversation.messages.size();
    for (std::size_t i = 0; i < size; ++i) {
      const ChatMessage& message = conversation.messages[i];
      if (message.role != Role::assistant || !message.is_target) continue;
      const std::string before = run(conversation, i, options, true).text.bytes();
      check_prefix(before, i, "without");
      std::size_t end = chat.text.size();
      if (i + 1 < size) {
        const std::string with = run(conversation, i + 1, options, false).text.bytes();
        check_prefix(with, i, "with");
        end = with.size();
      }
      while (end > before.size() && !output.text.is_record(end - 1) &&
             kBlank.find(chat.text[end - 1]) != std::string_view::npos)
        --end;
      if (before.size() < end) add_answer(output, before.size(), end, chat);
    }
  }

  jinja::JinjaTemplate template_;
};

/// Finds out if RenderOptions::thinking changes the prompt of a template.
ThinkingSwitch thinking_switch(const JinjaChat& chat) {
  Conversation question;
  question.messages.resize(1);
  question.messages[0].content = "question";
  const auto prompt = [&](std::optional<bool> thinking) {
    return chat
        .render(question, {.begin_token = "<s>",
                           .end_token = "</s>",
                           .generation_prompt = true,
                           .thinking = thinking,
                           .with_date = true})
        .text;
  };
  try {
    const std::string off = prompt(false);
    if (prompt(true) == off) return ThinkingSwitch::none;
    return prompt({}) == off ? ThinkingSwitch::off_by_default : ThinkingSwitch::on_by_default;
  } catch (const Error& error) {  // the template refuses the question
    if (error.kind() != ErrorKind::data) throw;
    return ThinkingSwitch::none;
  }
}

}  // namespace

std::string jinja_of_tokenizer(const std::map<std::string, std::string>& files) {
  if (const auto file = files.find("chat_template.jinja"); file != files.end()) return file->second;
  const auto file = files.find("tokenizer_config.json");
  if (file == files.end()) return "";
  const Json config = parse_json(file->second, file->first);
  return config.is_object() ? default_jinja(config.value("chat_template", Json())) : "";
}

std::string custom_template_name(std::string_view jinja) {
  return cat("custom-", xxh3_128_hex(jinja).substr(0, 12));
}

ChatTemplatePtr shared_chat_template(std::string_view name) {
  return {&chat_template(name), [](const ChatTemplate*) {}};  // the named formats always exist
}

ChatTemplatePtr jinja_chat_template(const std::string& jinja, std::string_view where) {
  if (const ChatTemplate* named = nearest_chat_template(jinja);
      named != nullptr && named->jinja() == jinja)
    return shared_chat_template(named->name);
  const auto has = [&](std::string_view part) { return jinja.find(part) != std::string::npos; };
  // Qwen3-Coder writes a call as <tool_call> with <function=NAME>, which is not JSON.
  const bool writes_json_calls = has("<tool_call>") && !has("<function=");
  const auto chat = std::make_shared<const JinjaChat>(jinja, where);  // shared by copies of render
  ChatTemplate format{custom_template_name(jinja),
                      {},
                      MaskSearch::every_answer,
                      writes_json_calls ? CallForm::qwen : CallForm::none,
                      thinking_switch(*chat),
                      [chat](const Conversation& conversation, const RenderOptions& options) {
                        return chat->render(conversation, options);
                      },
                      [jinja] { return jinja; }};
  return std::make_shared<const ChatTemplate>(std::move(format));
}

}  // namespace trireme::text
