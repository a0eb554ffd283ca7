#pragma once
#include <string>

#include "bin/trireme/chat/chat_settings.hpp"
#include "config/command_line.hpp"
#include "generate/engine_config.hpp"
#include "generate/load_model.hpp"

namespace trireme {

class ChatTalk;
class LineReader;

/// `trireme chat`: a conversation in the terminal. From a pipe each line is a message, and only
/// answers are printed.
class ChatCommand {
 public:
  explicit ChatCommand(CommandLine& line);
  ChatCommand(const ChatCommand&) = delete;
  ChatCommand& operator=(const ChatCommand&) = delete;

 private:
  int run();
  /// Until the user leaves.
  static int run(ChatTalk& talk, LineReader& reader, bool someone_types);

  ModelOptions model_;
  std::string system_;
  std::string thinking_ = "auto";
  std::string history_;
  ChatSettings settings_;
  EngineConfig engine_;
};

}  // namespace trireme
