#include "data_prep/progress.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "core/log.hpp"
#include "core/number.hpp"

namespace trireme::data_prep {
namespace {

template <class... Args>
std::string print_to_text(const char* format, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

}  // namespace

ProgressDisplay::ProgressDisplay(std::string what, std::uint64_t total_bytes, std::string_view mode)
    : what_(std::move(what)), total_bytes_(total_bytes), output_(mode) {}

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

std::string ProgressDisplay::json() const {
  const double seconds = std::max(timer_.seconds(), 1e-9);
  const auto bytes = static_cast<double>(bytes_.load());
  const double done = bytes + static_cast<double>(skipped_.load());
  const double left = std::max(0.0, static_cast<double>(total_bytes_) - done);
  return json_text({{"progress", what_},
                    {"done", done},
                    {"total", total_bytes_},
                    {"unit", "bytes"},
                    {"rate", bytes / seconds},
                    {"eta_s", bytes > 0 ? Json(left * seconds / bytes) : Json()},
                    {"documents", documents_.load()},
                    {"tokens", tokens_.load()}});
}

void ProgressDisplay::show() {
  if (output_.is_due()) output_.show(line(), json());
}

void ProgressDisplay::finish() {
  if (output_.mode() == ProgressOutput::Mode::none) return;
  output_.end_line(/*keep=*/false);
  if (output_.mode() == ProgressOutput::Mode::json) return output_.show("", json());
  log::info(formatted("{}  took {}", line(), format_duration(timer_.seconds())));
}

}  // namespace trireme::data_prep
