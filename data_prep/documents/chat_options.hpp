#pragma once
#include <cstdint>
#include <string>

#include "config/command_line.hpp"
#include "data_prep/documents/pack_config.hpp"

namespace trireme {

/// The options of `pack` that are about chats, as they are given.
struct ChatOptions {
  ChatConfig config;
  std::string fields;            // names with commas between
  std::string augment = "none";  // or "minimind": MiniMind's probabilities
  double add_system = -1;        // below 0: what `augment` says
  double drop_empty_think = -1;
  std::string system_prompts;  // file, a prompt a line
  std::int64_t seed = 0;
};

/// `options` must outlive the command.
void add_chat_options(Command& command, ChatOptions& options);

/// Throws Error(usage) for a wrong preset, Error(data) if the file cannot be read.
ChatConfig resolve_chat_options(const ChatOptions& options);

}  // namespace trireme
