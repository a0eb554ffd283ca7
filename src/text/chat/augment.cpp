#include "text/chat/augment.hpp"

#include "core/philox.hpp"

namespace trireme::text {
namespace {

PhiloxWords numbers(const ChatAugment& augment, std::string_view purpose, const ChatDraw& draw) {
  const std::uint64_t place =
      std::uint64_t{draw.source} << 32 | std::uint64_t{draw.copy} << 1 | draw.side;
  return philox4x32(philox_key(augment.seed, purpose), draw.offset, place);
}

}  // namespace

void add_system_prompt(const ChatAugment& augment, const ChatDraw& draw,
                       Conversation& conversation) {
  if (augment.add_system <= 0 || augment.system_prompts.empty()) return;
  if (conversation.declares_tools || conversation.messages.empty() ||
      conversation.messages[0].role == Role::system)
    return;
  const PhiloxWords random = numbers(augment, "chat.system", draw);
  if (uniform_double(random[0], random[1]) >= augment.add_system) return;
  const std::uint64_t choice =
      (std::uint64_t{random[2]} * augment.system_prompts.size()) >> 32;  // always below the size
  ChatMessage system;
  system.role = Role::system;
  system.content = augment.system_prompts[choice];
  conversation.messages.insert(conversation.messages.begin(), std::move(system));
}

bool drops_empty_think(const ChatAugment& augment, const ChatDraw& draw) {
  if (augment.drop_empty_think <= 0) return false;
  const PhiloxWords random = numbers(augment, "chat.think", draw);
  return uniform_double(random[0], random[1]) < augment.drop_empty_think;
}

std::optional<bool> opens_thought(const ChatAugment& augment, const ChatDraw& draw) {
  if (!augment.thinking_ratio) return std::nullopt;
  const PhiloxWords random = numbers(augment, "chat.open_thought", draw);
  return uniform_double(random[0], random[1]) < *augment.thinking_ratio;
}

const std::vector<std::string>& default_system_prompts() {
  static const std::vector<std::string> prompts{
      "你是一位耐心的助手，请认真回答用户的问题。",
      "请用清楚、准确的语言帮助用户。",
      "你是一个语言模型助手，不知道的事情请直接说明。",
      "请根据用户的问题给出有用、简洁的回答。",
      "你的任务是理解用户的需要，并一步一步地解决问题。",
      "You are a patient assistant who answers with care.",
      "Help the user in clear and exact words.",
      "You are a language model. Say so when you do not know something.",
      "Give useful and short answers to what the user asks.",
      "Understand what the user needs, then solve it step by step."};
  return prompts;
}

}  // namespace trireme::text
