#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/progress.hpp"
#include "core/timer.hpp"

namespace trireme::data_prep {

/// Shows the progress of a job (core/progress.hpp) with documents and tokens, and a line at its end.
/// Any thread may call add(); one thread calls show() and finish().
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
  [[nodiscard]] std::string line() const;
  [[nodiscard]] std::string json() const;

  std::string what_;
  std::uint64_t total_bytes_;
  ProgressOutput output_;
  Timer timer_;
  std::atomic<std::uint64_t> skipped_{0}, bytes_{0}, documents_{0}, tokens_{0};
};

}  // namespace trireme::data_prep
