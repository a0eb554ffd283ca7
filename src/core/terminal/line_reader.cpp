#include "core/terminal/line_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cwchar>

#include "core/error.hpp"
#include "core/files/refusal.hpp"
#include "core/join.hpp"
#include "core/terminal/interrupts.hpp"
#include "core/terminal/terminal.hpp"

#ifdef TRIREME_HAVE_LIBEDIT
#include <histedit.h>
#include <poll.h>
#include <unistd.h>
#endif

namespace trireme {

#ifdef TRIREME_HAVE_LIBEDIT

namespace {

constexpr int kMaxHistory = 1000;

/// Returns true if more input is available now: the next line of pasted text.
bool more_is_there() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, 0) > 0 && (input.revents & POLLIN) != 0;
}

volatile std::sig_atomic_t resized = 0;

/// Returns the longest common prefix of all words.
std::string common_begin(const std::vector<std::string>& words) {
  std::string begin = words.front();
  for (const std::string& word : words)
    begin.resize(std::mismatch(begin.begin(), begin.end(), word.begin(), word.end()).first -
                 begin.begin());
  return begin;
}

}  // namespace

/// During its lifetime, Ctrl-C and a resize of the terminal arrive only in wait().
class LineReader::KeyWait {
 public:
  enum class Event { key, interrupt, resize, end };

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

  /// Waits for a key. `end` means that the terminal is gone. Never throws, because C code calls it.
  Event wait() {
    while (true) {
      if (CatchInterrupts::take()) return Event::interrupt;
      if (resized != 0) {
        resized = 0;
        return Event::resize;
      }
      pollfd input{STDIN_FILENO, POLLIN, 0};
      const int ready = ::ppoll(&input, 1, nullptr, &mask_before_);
      if (ready > 0) return Event::key;
      if (ready < 0 && errno != EINTR) return Event::end;
    }
  }

 private:
  struct sigaction resize_before_ {};

  sigset_t mask_before_{};
};

/// Edits lines on this process's terminal.
class LineReader::Editor {
 public:
  explicit Editor(const Options& options)
      : options_(options),
        out_(terminals().output ? stdout : stderr),
        history_(::history_init()),
        edit_(::el_init("trireme", stdin, out_, stderr)) {
    if (history_ == nullptr || edit_ == nullptr)
      fail(ErrorKind::resource, "no memory to edit lines");
    HistEvent event{};
    ::history(history_, &event, H_SETSIZE, kMaxHistory);
    if (!options_.history.empty()) ::history(history_, &event, H_LOAD, options_.history.c_str());
    ::el_set(edit_, EL_CLIENTDATA, this);
    ::el_set(edit_, EL_PROMPT, &prompt_of);
    ::el_set(edit_, EL_EDITOR, "emacs");
    ::el_set(edit_, EL_GETCFN, &next_key);
    ::el_set(edit_, EL_HIST, ::history, history_);
    ::el_set(edit_, EL_ADDFN, "trireme-complete", "completes a command", &complete);
    ::el_set(edit_, EL_BIND, "^I", "trireme-complete", nullptr);
    ::el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    ::el_source(edit_, nullptr);  // ~/.editrc
  }

  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  ~Editor() {
    HistEvent event{};
    if (!options_.history.empty()) ::history(history_, &event, H_SAVE, options_.history.c_str());
    ::el_end(edit_);
    ::history_end(history_);
  }

  Result read(std::string_view prompt, std::string& line) {
    prompt_ = prompt;
    line.clear();
    do {
      const Result result = read_one(line);
      if (result != Result::line) return result;
      prompt_.clear();
    } while (more_is_there());
    if (line.ends_with('\n')) line.pop_back();
    HistEvent event{};
    if (!line.empty()) ::history(history_, &event, H_ENTER, line.c_str());
    return Result::line;
  }

 private:
  /// Appends one line including its end.
  Result read_one(std::string& line) {
    KeyWait keys;
    keys_ = &keys;
    interrupted_ = false;
    std::fflush(stdout);
    ::el_resize(edit_);  // the size may have changed during an answer
    int size = 0;
    const char* const text = ::el_gets(edit_, &size);
    keys_ = nullptr;
    if (interrupted_) {
      std::fputs("^C\n", out_);
      ::el_reset(edit_);
      return Result::interrupt;
    }
    if (text == nullptr || size <= 0) {
      std::fputc('\n', out_);
      return Result::end;
    }
    line += text;
    return Result::line;
  }

  /// Callback of libedit: returns 1 with a character, 0 at the end, -1 to discard the line.
  static int next_key(EditLine* edit, wchar_t* key) {
    Editor& editor = of(edit);
    std::mbstate_t state{};
    while (true) {
      const auto event = editor.keys_->wait();
      if (event == KeyWait::Event::interrupt) {
        editor.interrupted_ = true;
        return -1;
      }
      if (event == KeyWait::Event::resize) {
        ::el_resize(edit);
        ::el_set(edit, EL_REFRESH);
        continue;
      }
      char byte = 0;
      if (event == KeyWait::Event::end || ::read(STDIN_FILENO, &byte, 1) <= 0) return 0;
      const std::size_t taken = std::mbrtowc(key, &byte, 1, &state);
      if (taken == static_cast<std::size_t>(-2)) continue;  // an incomplete character
      if (taken == static_cast<std::size_t>(-1)) *key = L'\uFFFD';
      return 1;
    }
  }

  static Editor& of(EditLine* edit) {
    Editor* editor = nullptr;
    ::el_get(edit, EL_CLIENTDATA, &editor);
    return *editor;
  }

  static char* prompt_of(EditLine* edit) { return of(edit).prompt_.data(); }

  static unsigned char complete(EditLine* edit, int /*key*/) {
    const LineInfo* const info = ::el_line(edit);
    const std::string_view typed(info->buffer,
                                 static_cast<std::size_t>(info->cursor - info->buffer));
    std::vector<std::string> fitting;
    for (const std::string& command : of(edit).options_.commands)
      if (typed.starts_with('/') && command.starts_with(typed)) fitting.push_back(command);
    if (fitting.empty()) return CC_ERROR;
    std::string rest = common_begin(fitting).substr(typed.size());
    if (fitting.size() == 1) rest += ' ';
    if (!rest.empty()) return ::el_insertstr(edit, rest.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
    std::fputs(formatted("\n{}\n", joined(fitting, "  ")).c_str(), of(edit).out_);
    return CC_REDISPLAY;
  }

  const Options& options_;
  std::FILE* out_;
  History* history_;
  EditLine* edit_;
  std::string prompt_;
  KeyWait* keys_ = nullptr;
  bool interrupted_ = false;
};

LineReader::LineReader(Options options) : options_(std::move(options)) {
  const Terminals there = terminals();
  if (there.input && (there.output || there.errors)) editor_ = std::make_unique<Editor>(options_);
}

LineReader::Result LineReader::read_edited(std::string_view prompt, std::string& line) {
  return editor_->read(prompt, line);
}

#else

class LineReader::Editor {};

LineReader::LineReader(Options options) : options_(std::move(options)) {}

LineReader::Result LineReader::read_edited(std::string_view, std::string& line) {
  return read_plain(line);
}

#endif

LineReader::~LineReader() = default;

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

LineReader::Result LineReader::read(std::string_view prompt, std::string& line) {
  if (edits()) return read_edited(prompt, line);
  if (terminals().input) {
    std::fwrite(prompt.data(), 1, prompt.size(), stderr);
    std::fflush(stderr);
  }
  return read_plain(line);
}

}  // namespace trireme
