#include "core/terminal/line_reader.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/error.hpp"
#include "core/files/refusal.hpp"
#include "core/terminal/interrupts.hpp"
#include "core/terminal/terminal.hpp"

#ifdef TRIREME_HAVE_READLINE
#include <poll.h>
#include <readline/history.h>
#include <readline/readline.h>
#include <unistd.h>
#endif

namespace trireme {
namespace {

struct FreeText {
  void operator()(char* text) const { std::free(text); }
};

}  // namespace

LineReader::Result LineReader::read_plain(std::string& line) {
  line.clear();
  for (;;) {
    const int letter = std::fgetc(stdin);
    if (letter == '\n') return Result::line;
    if (letter != EOF) {
      line.push_back(static_cast<char>(letter));
      continue;
    }
    if (std::ferror(stdin) != 0) {
      const int error = errno;
      std::clearerr(stdin);
      if (error == EINTR && CatchInterrupts::take()) return Result::interrupt;
      if (error != EINTR) fail_to_read("read", "standard input", error);
    } else {
      return line.empty() ? Result::end : Result::line;
    }
  }
}

#ifdef TRIREME_HAVE_READLINE

namespace {

constexpr int kMaxHistory = 1000;

// Readline calls functions without an argument of ours, so what they share is here.
struct TypedLine {
  bool done = false;
  std::unique_ptr<char, FreeText> text;
  const std::vector<std::string>* commands = nullptr;
};

TypedLine& typed() {
  static TypedLine one;
  return one;
}

void take_line(char* text) {
  typed().text.reset(text);
  typed().done = true;
  rl_callback_handler_remove();  // no second prompt
}

char* next_command(const char* begin, int state) {
  static std::size_t at = 0;
  if (state == 0) at = 0;
  const std::vector<std::string>& commands = *typed().commands;
  for (; at < commands.size(); ++at) {
    if (commands[at].starts_with(begin)) return ::strdup(commands[at++].c_str());
  }
  return nullptr;
}

char** complete_command(const char* begin, int start, int) {
  rl_attempted_completion_over = 1;  // no file names
  return start == 0 && *begin == '/' ? rl_completion_matches(begin, next_command) : nullptr;
}

volatile std::sig_atomic_t resized = 0;

/// Waits for a key, Ctrl-C or a new size of the terminal; none of them comes in between unseen.
class KeyWait {
 public:
  KeyWait() {
    struct sigaction now {};

    now.sa_handler = [](int) { resized = 1; };
    sigemptyset(&now.sa_mask);
    sigaction(SIGWINCH, &now, &resize_before_);
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGWINCH);
    pthread_sigmask(SIG_BLOCK, &held, &mask_before_);
  }

  KeyWait(const KeyWait&) = delete;
  KeyWait& operator=(const KeyWait&) = delete;

  ~KeyWait() {
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
    sigaction(SIGWINCH, &resize_before_, nullptr);
  }

  /// Whether there is a key.
  bool wait() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const int ready = ::ppoll(&input, 1, nullptr, &mask_before_);
    if (ready < 0 && errno != EINTR) fail_to_read("read", "standard input", errno);
    return ready > 0;
  }

 private:
  struct sigaction resize_before_ {};

  sigset_t mask_before_{};
};

void forget_typed() {
  std::fputs("^C\n", rl_outstream);
  rl_callback_sigcleanup();
  rl_callback_handler_remove();
}

}  // namespace

LineReader::LineReader(Options options) : options_(std::move(options)) {
  const Terminals there = terminals();
  edits_ = there.input && (there.output || there.errors);
  if (!edits_) return;
  rl_readline_name = "trireme";
  rl_instream = stdin;
  rl_outstream = there.output ? stdout : stderr;
  rl_catch_signals = 0;
  rl_catch_sigwinch = 0;
  rl_attempted_completion_function = complete_command;
  rl_basic_word_break_characters = " \t\n";
  using_history();
  stifle_history(kMaxHistory);
  if (!options_.history.empty()) read_history(options_.history.c_str());
}

LineReader::~LineReader() {
  if (!edits_) return;
  rl_callback_handler_remove();
  if (!options_.history.empty()) write_history(options_.history.c_str());
}

LineReader::Result LineReader::read_edited(std::string_view prompt, std::string& line) {
  typed() = {false, nullptr, &options_.commands};
  KeyWait keys;
  std::fflush(stdout);
  rl_reset_screen_size();  // it may have changed during an answer
  rl_callback_handler_install(std::string(prompt).c_str(), take_line);
  while (!typed().done) {
    // Also what was pressed before this line began; from here on signals come while we wait only.
    if (CatchInterrupts::take()) {
      forget_typed();
      return Result::interrupt;
    }
    if (resized != 0) {
      resized = 0;
      rl_resize_terminal();
    }
    if (keys.wait()) rl_callback_read_char();
  }
  if (typed().text == nullptr) {
    std::fputc('\n', rl_outstream);
    return Result::end;
  }
  line = typed().text.get();
  if (!line.empty()) add_history(line.c_str());
  return Result::line;
}

#else

LineReader::LineReader(Options options) : options_(std::move(options)) {}

LineReader::~LineReader() = default;

LineReader::Result LineReader::read_edited(std::string_view, std::string& line) {
  return read_plain(line);
}

#endif

LineReader::Result LineReader::read(std::string_view prompt, std::string& line) {
  if (edits_) return read_edited(prompt, line);
  if (terminals().input) {
    std::fwrite(prompt.data(), 1, prompt.size(), stderr);
    std::fflush(stderr);
  }
  return read_plain(line);
}

}  // namespace trireme
