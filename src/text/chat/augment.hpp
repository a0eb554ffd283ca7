#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/conversation.hpp"

namespace trireme {

/// Random changes of a conversation. Off by default.
struct ChatAugment {
  double add_system = 0;        // probability of a system message where there is none, and no tools
  double drop_empty_think = 0;  // probability that empty thoughts are left out of a chat
  std::vector<std::string> system_prompts;  // to choose from
  std::uint64_t seed = 0;
};

/// What the draws of a record depend on: nothing else, so they are the same for any number of
/// threads, ranks and restarts.
struct ChatDraw {
  std::uint32_t source = 0;  // index of the input
  std::uint64_t offset = 0;  // of the record in it
  std::uint32_t copy = 0;    // of the record: 0, 1, ...
  std::uint32_t side = 0;    // of a pair: 0 chosen, 1 rejected
};

/// Perhaps puts a system message first.
void add_system_prompt(const ChatAugment& augment, const ChatDraw& draw,
                       Conversation& conversation);

/// Whether this chat loses its empty thoughts.
bool drops_empty_think(const ChatAugment& augment, const ChatDraw& draw);

/// Five prompts in Chinese and five in English.
const std::vector<std::string>& default_system_prompts();

}  // namespace trireme
