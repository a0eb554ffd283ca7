#include "text/chat/chat_template.hpp"

#include <array>

#include "core/edit_distance.hpp"
#include "core/error.hpp"
#include "core/join.hpp"
#include "text/chat/chatml.hpp"
#include "text/chat/header_templates.hpp"
#include "text/chat/jinja_chat.hpp"

namespace trireme::text {
namespace {

template <const ChatMlStyle& style>
RenderedChat chatml_as(const Conversation& conversation, const RenderOptions& options) {
  return render_chatml(style, conversation, options);
}

template <const ChatMlStyle& style>
std::string chatml_jinja_as() {
  return chatml_jinja(style);
}

const std::array<ChatTemplate, 8>& templates() {
  using enum MaskSearch;
  using Switch = ThinkingSwitch;
  static const std::vector<std::string_view> old{"<s>", "</s>"};
  static const std::vector<std::string_view> chatml{"<|im_start|>", "<|im_end|>"};
  static const std::vector<std::string_view> thinking{"<|im_start|>", "<|im_end|>", "<think>",
                                                      "</think>"};
  static const std::vector<std::string_view> llama{"<|start_header_id|>", "<|end_header_id|>",
                                                   "<|eot_id|>"};
  constexpr auto kNone = CallForm::none;
  constexpr auto kQwen = CallForm::qwen;
  static const std::array<ChatTemplate, 8> table{{
      {"minimind-v1", old, last_answer, kNone, Switch::none, render_minimind_v1, minimind_v1_jinja},
      {"minimind-v2", old, after_line, kNone, Switch::none, render_minimind_v2, minimind_v2_jinja},
      {"minimind-v2.5", chatml, whole_header, kQwen, Switch::on_by_default, chatml_as<kMinimindV25>,
       chatml_jinja_as<kMinimindV25>},
      {"minimind-v3", thinking, whole_header, kQwen, Switch::off_by_default, chatml_as<kMinimindV3>,
       chatml_jinja_as<kMinimindV3>},
      {"chatml", chatml, whole_header, kQwen, Switch::none, chatml_as<kPlainChatMl>,
       chatml_jinja_as<kPlainChatMl>},
      {"qwen3", thinking, whole_header, kQwen, Switch::on_by_default, chatml_as<kQwen3>,
       chatml_jinja_as<kQwen3>},
      {"llama3", llama, every_answer, kNone, Switch::none, render_llama3, llama3_jinja},
      {"plain", {}, every_answer, kNone, Switch::none, render_plain, plain_jinja},
  }};
  return table;
}

}  // namespace

std::span<const ChatTemplate> chat_templates() {
  return templates();
}

std::string_view role_name(Role role) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"system", "user", "assistant", "tool"};
  return kNames[static_cast<std::size_t>(role)];
}

std::optional<Role> role_from_name(std::string_view name) noexcept {
  for (const Role role : {Role::system, Role::user, Role::assistant, Role::tool}) {
    if (name == role_name(role)) return role;
  }
  return std::nullopt;
}

std::string chat_template_names() {
  return joined(templates(), ", ", [](const ChatTemplate& each) { return each.name; });
}

const ChatTemplate* nearest_chat_template(std::string_view jinja) {
  for (const ChatTemplate& each : templates()) {
    if (jinja == each.jinja()) return &each;
  }
  const auto has = [&](std::string_view part) {
    return jinja.find(part) != std::string_view::npos;
  };
  if (has("<|start_header_id|>")) return &chat_template("llama3");
  if (has("<|im_start|>")) {
    if (has("open_thinking")) return &chat_template("minimind-v3");
    if (!has("enable_thinking")) return &chat_template("chatml");
    // This default system message belongs to MiniMind's V2.5, not to Qwen3.
    return &chat_template(has("You are a helpful assistant") ? "minimind-v2.5" : "qwen3");
  }
  if (has("<s>user")) return &chat_template(has("MiniMind") ? "minimind-v2" : "minimind-v1");
  return nullptr;
}

const ChatTemplate* find_chat_template(std::string_view name) {
  for (const ChatTemplate& each : templates()) {
    if (name == each.name) return &each;
  }
  return nullptr;
}

const ChatTemplate& chat_template(std::string_view name) {
  if (const ChatTemplate* found = find_chat_template(name)) return *found;
  const std::string known = cat(chat_template_names(), ", ", kTokenizerTemplate);
  if (name.empty()) fail(ErrorKind::usage, "--template is missing; it must be one of: {}", known);
  std::vector<std::string> names{std::string(kTokenizerTemplate)};
  for (const ChatTemplate& each : templates()) names.emplace_back(each.name);
  fail(ErrorKind::usage, "there is no chat template {}; it must be one of: {}{}", name, known,
       did_you_mean(name, names));
}

}  // namespace trireme::text
