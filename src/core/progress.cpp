#include "core/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/background_log.hpp"
#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "core/format_count.hpp"
#include "core/log.hpp"
#include "core/number.hpp"

namespace trireme {
namespace {

using Mode = ProgressOutput::Mode;

constexpr double kBarPeriod_s = 0.1;
constexpr double kJsonPeriod_s = 1;

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

std::size_t terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

Mode mode_named(std::string_view name) {
  if (name == "bar") return Mode::bar;
  if (name == "log") return Mode::log;
  if (name == "json") return Mode::json;
  if (name == "none") return Mode::none;
  TRIREME_ASSERT(name == "auto");
  return is_terminal() ? Mode::bar : Mode::log;
}

}  // namespace

std::vector<std::string> progress_mode_names() {
  return {"auto", "bar", "log", "json", "none"};
}

std::string& progress_mode() {
  static std::string mode = "auto";
  return mode;
}

ProgressOutput::ProgressOutput(std::string_view mode, double log_period_s)
    : mode_(mode_named(mode)), log_period_s_(log_period_s) {}

bool ProgressOutput::is_due() const {
  if (mode_ == Mode::none) return false;
  const double period_s = mode_ == Mode::bar    ? kBarPeriod_s
                          : mode_ == Mode::json ? kJsonPeriod_s
                                                : log_period_s_;
  return since_line_.seconds() >= period_s;
}

void ProgressOutput::show(const std::string& text, const std::string& json) {
  since_line_.restart();
  if (mode_ == Mode::log) {
    log::info(text);
  } else if (mode_ == Mode::json) {
    log::write_raw(json + "\n");
  } else if (mode_ == Mode::bar) {
    log::write_raw(cat("\r", text.substr(0, terminal_width() - 1), "\033[K"));
    open_ = true;
  }
}

void ProgressOutput::end_line(bool keep) {
  if (open_) log::write_raw(keep ? "\n" : "\r\033[K");
  open_ = false;
}

Progress::Progress(std::string what, double total, Unit unit)
    : what_(std::move(what)), total_(total), unit_(unit) {}

Progress::~Progress() {
  try {
    if (was_shown_ && output_.mode() != Mode::bar) output_.show(text(done_), json(done_));
    output_.end_line(/*keep=*/false);
  } catch (const std::exception&) {  // a lost line of progress changes no result
  }
}

void Progress::add(double amount) noexcept {
  done_.fetch_add(amount);
  show();
}

void Progress::show() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !output_.is_due()) return;
  try {
    output_.show(text(done_), json(done_));
    was_shown_ = true;
  } catch (const std::exception&) {  // a lost line of progress changes no result
  }
}

std::string Progress::text(double done) const {
  const auto amount = [&](double value) {
    return unit_ == Unit::bytes ? format_bytes(value) : format_count(value);
  };
  const double rate = done / std::max(timer_.seconds(), 1e-9);
  const double share = total_ > 0 ? std::min(1.0, done / total_) : 1;
  return formatted("{}  {} %  {} of {}  {}/s  ETA {}", what_, std::lround(100 * share),
                   amount(done), amount(total_), amount(rate),
                   rate > 0 ? format_duration(std::max(0.0, total_ - done) / rate) : "-");
}

std::string Progress::json(double done) const {
  const double rate = done / std::max(timer_.seconds(), 1e-9);
  return json_text({{"progress", what_},
                    {"done", done},
                    {"total", total_},
                    {"unit", unit_ == Unit::bytes ? "bytes" : "items"},
                    {"rate", rate},
                    {"eta_s", rate > 0 ? Json(std::max(0.0, total_ - done) / rate) : Json()}});
}

}  // namespace trireme
