#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bin/trireme/chat/answer_printer.hpp"
#include "bin/trireme/chat/chat_settings.hpp"
#include "generate/engine.hpp"
#include "generate/load/load_model.hpp"
#include "text/chat/chat_writer.hpp"

namespace trireme {

/// A conversation with a model, line by line. A line that begins with "/" is a command ("//" begins a
/// message with one), three double quotes begin and end a message of several lines.
class ChatTalk {
 public:
  /// All must outlive this. `on_terminal`: someone looks; else only answers are printed.
  ChatTalk(const LoadedModel& model, GenerationEngine& engine, ChatSettings settings,
           std::string system, bool on_terminal);

  /// False: the user wants to leave. Throws Error(usage) for what a command or message cannot be, with
  /// the conversation as before, and what the engine says of the model.
  bool take(std::string_view line);

  /// In a message of several lines.
  [[nodiscard]] bool is_open() const { return is_open_; }

  /// What was begun is the whole message.
  void end_open();

  /// Ctrl-C while typing: what was begun is dropped.
  void drop_open();

  static std::vector<std::string> commands();

 private:
  struct Command;
  static const std::vector<Command>& table();

  bool run_command(std::string_view line);
  /// The last message is one.
  [[nodiscard]] bool has_answer() const;
  void ask(std::string text);
  /// To the conversation as it is, as `attempt_` says.
  void answer();
  [[nodiscard]] Request request(const RenderedChat& chat) const;

  void help() const;
  [[nodiscard]] std::string_view system() const;
  void begin(std::string system);
  void regenerate();
  void save(const std::filesystem::path& file) const;
  void set(std::string_view words);
  void show_thoughts() const;
  void say(std::string_view text) const;

  GenerationEngine& engine_;
  ChatWriter writer_;
  std::vector<std::uint32_t> end_tokens_;
  std::vector<std::string> end_texts_;
  ChatSettings settings_;
  Conversation conversation_;
  std::string open_text_;
  std::uint64_t attempt_ = 0;  // answers to the same question so far
  bool is_open_ = false;
  bool on_terminal_;
};

}  // namespace trireme
