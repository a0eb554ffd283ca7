#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

/// Prints an answer as it comes. Thoughts are one line that says how long they take, unless they are
/// to be shown; where nobody looks they are left out. What a model wrote cannot steer the terminal.
class AnswerPrinter {
 public:
  struct Style {
    bool on_terminal = false;
    bool colours = false;
    bool show_thoughts = false;
  };

  explicit AnswerPrinter(Style style) : style_(style), start_(Clock::now()) {}

  /// `tokens`: how many there are so far.
  void thought(std::string_view text, std::int64_t tokens);
  void content(std::string_view text);

  /// Ends the line, and on a terminal says `note` and how fast it was.
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
