#include "data_prep/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/number.hpp"

namespace trireme::data_prep {
namespace {

constexpr double kBarPeriod = 0.1;
constexpr double kLogPeriod = 30;

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

std::size_t terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

template <class... Args>
std::string print_to_text(const char* format, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

}  // namespace

std::vector<std::string> progress_mode_names() {
  return {"auto", "bar", "log", "none"};
}

ProgressDisplay::Mode ProgressDisplay::mode_named(std::string_view name) {
  if (name == "bar") return Mode::bar;
  if (name == "log") return Mode::log;
  if (name == "none") return Mode::none;
  TRIREME_ASSERT(name == "auto");
  return is_terminal() ? Mode::bar : Mode::log;
}

ProgressDisplay::ProgressDisplay(std::string what, std::uint64_t total_bytes, std::string_view mode)
    : what_(std::move(what)), total_bytes_(total_bytes), mode_(mode_named(mode)) {}

void ProgressDisplay::add(std::uint64_t bytes, std::uint64_t documents,
                          std::uint64_t tokens) noexcept {
  bytes_ += bytes;
  documents_ += documents;
  tokens_ += tokens;
}

std::string ProgressDisplay::line() const {
  const double seconds = std::max(timer_.seconds(), 1e-9);
  const auto bytes = static_cast<double>(bytes_.load());
  const auto done = bytes + static_cast<double>(skipped_.load());
  const auto total = static_cast<double>(total_bytes_);
  const double rate = bytes / seconds;
  std::string eta = "-";
  if (bytes > 0) eta = format_duration((total - done) / rate);
  return cat(what_,
             print_to_text(" %5.1f%%  %.1f/%.1f MB  %.1f MB/s  %.2fM tok/s  %llu documents  ETA ",
                           total > 0 ? 100 * done / total : 100.0, done / 1e6, total / 1e6,
                           rate / 1e6, static_cast<double>(tokens_.load()) / seconds / 1e6,
                           static_cast<unsigned long long>(documents_.load())),
             eta);
}

void ProgressDisplay::show() {
  const double now = timer_.seconds();
  if (mode_ == Mode::none || now - shown_at_s_ < (mode_ == Mode::bar ? kBarPeriod : kLogPeriod))
    return;
  shown_at_s_ = now;
  if (mode_ == Mode::log) {
    log::info(line());
  } else {
    std::fprintf(stderr, "\r%s\033[K", line().substr(0, terminal_width() - 1).c_str());
    std::fflush(stderr);
  }
}

void ProgressDisplay::finish() {
  if (mode_ == Mode::none) return;
  if (mode_ == Mode::bar) std::fputs("\r\033[K", stderr);
  log::info(formatted("{}  took {}", line(), format_duration(timer_.seconds())));
}

}  // namespace trireme::data_prep
