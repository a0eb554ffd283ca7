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

/// A conversation with a model that reads one line at a time. A line that begins with "/" is a
/// command; "//" begins a message with "/". Three double quotes begin and end a message of several
/// lines.
class ChatSession {
 public:
  /// All references must outlive this object. Without `on_terminal`, only answers are printed.
  ChatSession(const generate::LoadedModel& model, generate::GenerationEngine& engine,
              ChatSettings settings, std::string system, bool on_terminal);

  /// Processes one line. Returns false if the user wants to leave. Throws Error(usage) for an
  /// invalid command or message, and the errors of the engine; then the conversation is unchanged.
  bool take(std::string_view line);

  /// Returns true inside a message of several lines.
  [[nodiscard]] bool is_open() const { return is_open_; }

  /// Sends the open message although its closing quotes are missing.
  void end_open();

  /// Drops the open message (Ctrl-C while typing).
  void drop_open();

  static std::vector<std::string> commands();

 private:
  struct Command;
  static const std::vector<Command>& table();

  bool run_command(std::string_view line);
  /// Returns true if the last message is an answer of the model.
  [[nodiscard]] bool has_answer() const;
  void ask(std::string text);
  /// Generates answer number `attempt_` to the current conversation and appends it.
  void answer();
  [[nodiscard]] generate::Request request(const text::RenderedChat& chat) const;

  void help() const;
  [[nodiscard]] std::string_view system() const;
  void begin(std::string system);
  void regenerate();
  void save(const std::filesystem::path& file) const;
  void set(std::string_view words);
  void show_thoughts() const;
  void say(std::string_view text) const;

  generate::GenerationEngine& engine_;
  text::ChatWriter writer_;
  std::vector<std::uint32_t> end_tokens_;
  std::vector<std::string> end_texts_;
  ChatSettings settings_;
  text::Conversation conversation_;
  std::string open_text_;
  std::uint64_t attempt_ = 0;  // number of earlier answers to the same question
  bool is_open_ = false;
  bool on_terminal_;
};

}  // namespace trireme
