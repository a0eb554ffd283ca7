#include "text/chat/chat_template.hpp"

#include <array>

#include "core/error.hpp"
#include "core/join.hpp"
#include "text/chat/chatml.hpp"
#include "text/chat/header_templates.hpp"

namespace trireme {
namespace {

template <int version>
RenderedChat minimind(const Conversation& conversation, const RenderOptions& options) {
  constexpr ChatMlStyle kStyle = version == 25 ? kMinimindV25 : kMinimindV3;
  return render_chatml(kStyle, conversation, options);
}

RenderedChat chatml(const Conversation& conversation, const RenderOptions& options) {
  return render_chatml(kPlainChatMl, conversation, options);
}

RenderedChat qwen3(const Conversation& conversation, const RenderOptions& options) {
  return render_chatml(kQwen3, conversation, options);
}

const std::array<ChatTemplate, 8>& templates() {
  using enum MaskSearch;
  static const std::array<ChatTemplate, 8> table{{
      {"minimind-v1", {"<s>", "</s>"}, last_answer, render_minimind_v1},
      {"minimind-v2", {"<s>", "</s>"}, after_line, render_minimind_v2},
      {"minimind-v2.5", {"<|im_start|>", "<|im_end|>"}, whole_header, minimind<25>},
      {"minimind-v3",
       {"<|im_start|>", "<|im_end|>", "<think>", "</think>"},
       whole_header,
       minimind<3>},
      {"chatml", {"<|im_start|>", "<|im_end|>"}, whole_header, chatml},
      {"qwen3", {"<|im_start|>", "<|im_end|>", "<think>", "</think>"}, whole_header, qwen3},
      {"llama3",
       {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
       every_answer,
       render_llama3},
      {"plain", {}, every_answer, render_plain},
  }};
  return table;
}

}  // namespace

std::string_view role_name(Role role) noexcept {
  switch (role) {
    case Role::system:
      return "system";
    case Role::user:
      return "user";
    case Role::assistant:
      return "assistant";
    case Role::tool:
      return "tool";
  }
  return "user";
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

const ChatTemplate& chat_template(std::string_view name) {
  for (const ChatTemplate& each : templates()) {
    if (name == each.name) return each;
  }
  fail(ErrorKind::usage, "--template {}; it must be one of: {}", name.empty() ? "is missing" : name,
       chat_template_names());
}

}  // namespace trireme
