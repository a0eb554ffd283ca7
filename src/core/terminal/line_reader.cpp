#include "core/terminal/line_reader.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/files/refusal.hpp"
#include "core/terminal/interrupts.hpp"
#include "core/terminal/terminal.hpp"

namespace trireme {
namespace {

constexpr std::size_t kMaxHistoryBytes = std::size_t{16} << 20;
/// The bytes of one key come together; an Escape that stands alone is none of ours.
constexpr int kSameKey_ms = 50;

// A terminal that knows it marks pasted texts.
constexpr std::string_view kMarkPastes = "\x1b[?2004h";
constexpr std::string_view kNoMarks = "\x1b[?2004l";
constexpr std::string_view kPasteEnd = "\x1b[201~";

constexpr unsigned char ctrl(char letter) {
  return static_cast<unsigned char>(letter & 0x1f);
}

void show(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 3 ? size.ws_col : 80;
}

std::size_t utf8_length(unsigned char first) {
  return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
}

}  // namespace

LineReader::LineReader(Options options) : options_(std::move(options)) {
  if (!options_.history.empty() && std::filesystem::exists(options_.history)) {
    const std::string where = options_.history.string();
    std::string_view rest;
    const std::string text = read_text(options_.history, kMaxHistoryBytes);
    for (rest = text; !rest.empty();) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      const Json line = parse_json(std::string(rest.substr(0, end)), where);
      if (!line.is_string()) fail(ErrorKind::data, "{}: a line is no JSON text", where);
      history_.push_back(line.get<std::string>());
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  const Terminals there = terminals();
  termios now{};
  if (!there.input || !there.output || ::tcgetattr(STDIN_FILENO, &now) != 0) return;
  before_ = now;
  set_terminal(false);
  show(kMarkPastes);
}

LineReader::~LineReader() {
  if (!before_) return;
  show(kNoMarks);
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &*before_);
}

void LineReader::set_terminal(bool typing) const {
  termios mode = *before_;
  mode.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN);
  mode.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | IXON);
  // While nobody types, Ctrl-C is a signal; as a key it has its place among the others.
  if (typing) mode.c_lflag &= ~static_cast<tcflag_t>(ISIG);
  mode.c_cc[VMIN] = 1;
  mode.c_cc[VTIME] = 0;
  if (::tcsetattr(STDIN_FILENO, TCSADRAIN, &mode) != 0)
    fail_to_read("set up", "the terminal", errno);
}

LineReader::Result LineReader::read_plain(std::string& line) {
  line.clear();
  for (;;) {
    const int letter = std::fgetc(stdin);
    if (letter == '\n') return Result::line;
    if (letter != EOF) {
      line.push_back(static_cast<char>(letter));
      continue;
    }
    if (std::ferror(stdin) == 0) return line.empty() ? Result::end : Result::line;
    const int error = errno;
    std::clearerr(stdin);
    if (error == EINTR && CatchInterrupts::take()) return Result::interrupt;
    if (error != EINTR) fail_to_read("read", "standard input", error);
  }
}

std::optional<unsigned char> LineReader::next_key(int timeout_ms) {
  for (;;) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const int ready = ::poll(&input, 1, timeout_ms);
    if (ready == 0) return std::nullopt;
    unsigned char key = 0;
    const ssize_t size = ready < 0 ? -1 : ::read(STDIN_FILENO, &key, 1);
    if (size == 1) return key;
    // A terminal that has gone away gives EIO.
    if (size == 0 || errno == EIO) return std::nullopt;
    if (errno != EINTR) fail_to_read("read", "standard input", errno);
  }
}

std::string LineReader::pasted() {
  std::string text;
  while (!text.ends_with(kPasteEnd)) {
    const auto key = next_key();
    if (!key) return text;
    text.push_back(*key == '\r' ? '\n' : static_cast<char>(*key));
  }
  text.resize(text.size() - kPasteEnd.size());
  return text;
}

void LineReader::press_escape() {
  const auto kind = next_key(kSameKey_ms);
  if (!kind || (*kind != '[' && *kind != 'O')) return;
  std::string number;
  auto key = next_key(kSameKey_ms);
  for (; key && ((*key >= '0' && *key <= '9') || *key == ';'); key = next_key(kSameKey_ms))
    number.push_back(static_cast<char>(*key));
  if (!key) return;
  if (*key == 'A') return recall(-1);
  if (*key == 'B') return recall(1);
  if (*key == 'C') return line_.right();
  if (*key == 'D') return line_.left();
  if (*key == 'H') return line_.to_start();
  if (*key == 'F') return line_.to_end();
  if (*key != '~') return;
  if (number == "200") return line_.insert(pasted());
  if (number == "3") return line_.erase_at();
  if (number == "1" || number == "7") return line_.to_start();
  if (number == "4" || number == "8") return line_.to_end();
}

void LineReader::recall(std::ptrdiff_t step) {
  if (step < 0 ? recalled_ == 0 : recalled_ == history_.size()) return;
  if (recalled_ == history_.size()) newest_ = line_.text();
  recalled_ = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(recalled_) + step);
  line_.set(recalled_ == history_.size() ? newest_ : history_[recalled_]);
}

void LineReader::complete() {
  const std::string begin = line_.text();
  if (!begin.starts_with('/') || !line_.at_end()) return;
  std::vector<std::string> fits;
  for (const std::string& command : options_.commands) {
    if (command.starts_with(begin)) fits.push_back(command);
  }
  if (fits.size() == 1) line_.set(fits.front() + " ");
}

std::optional<LineReader::Result> LineReader::press(unsigned char key) {
  switch (key) {
    case '\r':
    case '\n':
      return Result::line;
    case ctrl('C'):
      return Result::interrupt;
    case ctrl('D'):
      if (line_.empty()) return Result::end;
      line_.erase_at();
      break;
    case ctrl('A'):
      line_.to_start();
      break;
    case ctrl('E'):
      line_.to_end();
      break;
    case ctrl('B'):
      line_.left();
      break;
    case ctrl('F'):
      line_.right();
      break;
    case ctrl('H'):
    case 0x7f:
      line_.erase_before();
      break;
    case ctrl('U'):
      line_.erase_to_start();
      break;
    case ctrl('K'):
      line_.erase_to_end();
      break;
    case ctrl('W'):
      line_.erase_word_before();
      break;
    case ctrl('P'):
      recall(-1);
      break;
    case ctrl('N'):
      recall(1);
      break;
    case '\t':
      complete();
      break;
    case 0x1b:
      press_escape();
      break;
    default: {
      if (key < ' ') break;
      std::string character(1, static_cast<char>(key));
      while (character.size() < utf8_length(key)) {
        const auto next = next_key(kSameKey_ms);
        if (!next) break;
        character.push_back(static_cast<char>(*next));
      }
      line_.insert(character);
    }
  }
  return std::nullopt;
}

void LineReader::remember(const std::string& line) {
  if (line.empty() || (!history_.empty() && history_.back() == line)) return;
  history_.push_back(line);
  if (options_.history.empty()) return;
  const Fd file(::open(options_.history.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const std::string text = Json(line).dump() + "\n";
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    fail_to_write("write", options_.history, errno);
}

LineReader::Result LineReader::read_edited(std::string_view prompt, std::string& line) {
  line_.set("");
  recalled_ = history_.size();
  set_terminal(true);
  CatchInterrupts::take();  // of what came before this line
  std::optional<Result> result;
  while (!result) {
    show(line_.redraw(prompt, terminal_columns()));
    const auto key = next_key();
    result = key ? press(*key) : Result::end;
  }
  set_terminal(false);  // first: who sees the line end may press Ctrl-C for the answer
  show(line_.leave(prompt, terminal_columns()));
  line = line_.text();
  if (*result == Result::line) remember(line);
  return *result;
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
