#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

/// Prints an answer while it is generated. Unless `show_thoughts` is set, thoughts are replaced by
/// one line with their duration on a terminal, and left out elsewhere. Control characters in the
/// model's output are escaped, so that they cannot control the terminal.
class AnswerPrinter {
 public:
  struct Style {
    bool on_terminal = false;
    bool colours = false;
    bool show_thoughts = false;
  };

  explicit AnswerPrinter(Style style) : style_(style), start_(Clock::now()) {}

  /// `tokens`: number of tokens of the answer so far.
  void thought(std::string_view text, std::int64_t tokens);
  void content(std::string_view text);

  /// Ends the line. On a terminal, also prints `note`, the number of tokens and the speed.
  void end(std::int64_t tokens, std::string_view note);

 private:
  using Clock = std::chrono::steady_clock;

  void say_dim(std::string_view text) const;
  void end_thought();
  [[nodiscard]] double seconds() const;

  Style style_;
  Clock::time_point start_;
  Clock::time_point said_;
  bool thinks_ = false;
  bool at_line_start_ = true;
};

}  // namespace trireme
