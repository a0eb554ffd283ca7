#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/conversation.hpp"

namespace trireme::text {

/// Random changes of conversations. Off by default.
struct ChatAugment {
  double add_system = 0;  // probability of adding a system message if there is none and no tools
  double drop_empty_think = 0;  // probability that the empty thoughts of a chat are removed
  std::vector<std::string> system_prompts;  // the system message is chosen from these
  // probability that a generation prompt opens a thought; none: the choice of the template
  std::optional<double> thinking_ratio = {};
  std::uint64_t seed = 0;
};

/// The position of a record, from which random numbers are computed. Results therefore do not
/// depend on threads, ranks or restarts.
struct ChatDraw {
  std::uint32_t source = 0;  // index of the input
  std::uint64_t offset = 0;  // offset of the record in the input
  std::uint32_t copy = 0;    // copy of the record: 0, 1, ...
  std::uint32_t side = 0;    // side of a preference pair: 0 chosen, 1 rejected
};

/// Adds a system message with the probability add_system.
void add_system_prompt(const ChatAugment& augment, const ChatDraw& draw,
                       Conversation& conversation);

/// Returns true if the empty thoughts of this chat are removed.
bool drops_empty_think(const ChatAugment& augment, const ChatDraw& draw);

/// Returns RenderOptions::thinking of a prompt.
std::optional<bool> opens_thought(const ChatAugment& augment, const ChatDraw& draw);

/// Returns five prompts in Chinese and five in English.
const std::vector<std::string>& default_system_prompts();

}  // namespace trireme::text
