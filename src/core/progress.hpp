#pragma once
#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/timer.hpp"

/// Progress of long commands on standard error. The mode is a setting of the process, like the log
/// level:
///
///   bar   one line, which is redrawn
///   log   full lines in the log, at most one in 30 s
///   json  one JSON object per line, at most one per second
///   none  nothing
///   auto  bar on a terminal, else log
namespace trireme {

/// Returns the names of the modes; the first one is the default.
std::vector<std::string> progress_mode_names();

/// The mode of this process, one of progress_mode_names(). The option --progress writes it before
/// other threads exist. Programs set it to "none" on all ranks but rank 0.
std::string& progress_mode();

/// Placeholder and help of the option --progress.
inline constexpr const char* kProgressModes = "auto|bar|log|json|none";
inline constexpr const char* kProgressHelp =
    "progress on standard error: a redrawn line (bar), a line in the log at most every 30 s (log), "
    "JSON Lines (json) or nothing (none); auto: bar on a terminal, else log";

inline constexpr double kProgressLogPeriod_s = 30;

/// Writes the lines of one display. For one thread at a time.
class ProgressOutput {
 public:
  enum class Mode { bar, log, json, none };

  explicit ProgressOutput(std::string_view mode = progress_mode(),
                          double log_period_s = kProgressLogPeriod_s);

  [[nodiscard]] Mode mode() const noexcept { return mode_; }

  /// Returns true if the last line is old enough for another one.
  [[nodiscard]] bool is_due() const;

  /// Writes a line: `text`, or in mode json `json`, a JSON object.
  void show(const std::string& text, const std::string& json);

  /// Removes or completes the redrawn line before other output. `keep`: leaves its text on the
  /// terminal.
  void end_line(bool keep);

 private:
  Mode mode_;
  double log_period_s_;
  Timer since_line_;
  bool open_ = false;  // the redrawn line has no line end yet
};

/// The progress of work with a known amount, such as the bytes of a checkpoint: share, amount, rate
/// and ETA. Short work shows nothing in a log. Any thread may call add().
class Progress {
 public:
  enum class Unit { bytes, items };

  /// `what`: "verify", "export".
  Progress(std::string what, double total, Unit unit);
  /// Ends the display. In a log, the last line is complete if an earlier line was shown.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(double amount) noexcept;

 private:
  void show() noexcept;
  [[nodiscard]] std::string text(double done) const;
  [[nodiscard]] std::string json(double done) const;

  std::string what_;
  double total_;
  Unit unit_;
  std::mutex mutex_;
  ProgressOutput output_;
  Timer timer_;
  std::atomic<double> done_{0};
  bool was_shown_ = false;
};

}  // namespace trireme
