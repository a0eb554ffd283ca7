#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/timer.hpp"

namespace trireme::data_prep {

/// Returns the display modes: "auto", "bar", "log" and "none".
std::vector<std::string> progress_mode_names();

/// Shows the progress of a job on stderr: one redrawn line on a terminal, else a full line every 30
/// s and at the end. Any thread may call add(); one thread calls show() and finish().
class ProgressDisplay {
 public:
  /// `mode` is one of progress_mode_names().
  ProgressDisplay(std::string what, std::uint64_t total_bytes, std::string_view mode);

  /// Counts bytes that need no work as done, but not in the rate.
  void skip(std::uint64_t bytes) noexcept { skipped_ += bytes; }

  void add(std::uint64_t bytes, std::uint64_t documents, std::uint64_t tokens) noexcept;
  void show();
  void finish();

 private:
  enum class Mode { bar, log, none };

  static Mode mode_named(std::string_view name);
  [[nodiscard]] std::string line() const;

  std::string what_;
  std::uint64_t total_bytes_;
  Mode mode_;
  Timer timer_;
  double shown_at_s_ = 0;
  std::atomic<std::uint64_t> skipped_{0}, bytes_{0}, documents_{0}, tokens_{0};
};

}  // namespace trireme::data_prep
