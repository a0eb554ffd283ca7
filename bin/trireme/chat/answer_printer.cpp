#include "bin/trireme/chat/answer_printer.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "core/error.hpp"
#include "core/escape.hpp"
#include "core/process/run_main.hpp"
#include "core/terminal/terminal.hpp"

namespace trireme {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);

std::string with_tenths(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

}  // namespace

double AnswerPrinter::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void AnswerPrinter::say_dim(std::string_view text) const {
  print(style_.colours ? cat(kDim, text, kPlain) : std::string(text));
}

void AnswerPrinter::thought(std::string_view text, std::int64_t tokens) {
  if (text.empty()) return;
  const bool first = !std::exchange(thinks_, true);
  if (style_.show_thoughts) {
    say_dim(escape_controls(text));
    at_line_start_ = text.ends_with('\n');
  } else if (style_.on_terminal && (first || Clock::now() - said_ > kRedraw)) {
    said_ = Clock::now();
    print(kClearLine);
    say_dim(formatted("thinking: {} tokens, {} s", tokens, with_tenths(seconds())));
  }
  std::fflush(stdout);
}

void AnswerPrinter::end_thought() {
  if (!std::exchange(thinks_, false)) return;
  if (style_.show_thoughts) {
    print(at_line_start_ ? "\n" : "\n\n");
  } else if (style_.on_terminal) {
    print(kClearLine);
    say_dim(formatted("thought for {} s; /thoughts shows them", with_tenths(seconds())));
    print("\n");
  }
  at_line_start_ = true;
}

void AnswerPrinter::content(std::string_view text) {
  if (text.empty()) return;
  end_thought();
  print(escape_controls(text));
  at_line_start_ = text.ends_with('\n');
  std::fflush(stdout);
}

void AnswerPrinter::end(std::int64_t tokens, std::string_view note) {
  end_thought();
  if (!at_line_start_) print("\n");
  if (style_.on_terminal) {
    say_dim(formatted("{}{} tokens, {} tokens/s", note, tokens,
                      with_tenths(static_cast<double>(tokens) / std::max(seconds(), 1e-9))));
    print("\n\n");
  }
  std::fflush(stdout);
}

}  // namespace trireme
