#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/timer.hpp"
#include "job/run_folder.hpp"

namespace trireme {

/// When a run must begin its last save, so that the scheduler's time limit does not cut it off.
///
/// Margin: two steps and the validation between them, twice the longest save (before the first one:
/// a guess from the size of the state), and time to leave.
class TimeLimit {
 public:
  /// `end_s`: Unix time of the job's end; none: no limit. `state_bytes`: what this rank saves.
  TimeLimit(std::optional<double> end_s, double state_bytes);

  void step_took(double seconds);
  void validation_took(double seconds);
  void save_took(double seconds);

  [[nodiscard]] double margin_s() const;
  [[nodiscard]] bool reached(double now_s) const;

  /// An end that has passed already is another job's, whose variables this one was submitted with.
  void forget_past(double now_s);

  /// The scheduler ends the job at another time now.
  void moved_to(double end_s);

 private:
  std::optional<double> end_s_;
  double step_s_ = 0;  // longest of late: fades, since the first step is a slow one
  double validation_s_ = 0;
  double save_s_;
};

/// Everything that asks a run to save, or to save and stop: signals on any rank; on rank 0 also the
/// files STOP and SAVE in the run folder and the job's time limit.
class StopRequests {
 public:
  /// Asks the scheduler for the job's end as it is now (Unix time); none: no answer.
  using AskEnd = std::function<std::optional<double>()>;

  /// `limit` must outlive this object. `ask_end` is called before a stop for the time limit, because
  /// the limit may have been changed.
  StopRequests(RunFolder folder, bool first_rank, TimeLimit& limit, AskEnd ask_end = {});

  struct Request {
    bool stop = false;
    bool save = false;
  };

  /// Returns the requests before a step. Reads the run folder at most twice a second.
  [[nodiscard]] Request poll();

  /// Returns true if a signal or a file requests a stop. The time limit counts in whole steps and is
  /// left to poll().
  [[nodiscard]] bool stop_requested();

  /// Returns the reason for the stop of poll() on this rank: "STOP" (before all others), "SIGTERM",
  /// "time limit", or "signal" if another rank got it.
  [[nodiscard]] const std::string& requested_by() const { return requested_by_; }

  /// Returns requested_by() in words.
  [[nodiscard]] std::string reason() const;

  /// Removes the files of requests that are on disk now. requested_by() tells a file STOP that was
  /// not read before.
  void fulfilled(bool stopped);

 private:
  void look();
  /// True if the last save must begin now, also by what the scheduler says.
  [[nodiscard]] bool at_time_limit();

  static constexpr double kLook_s = 0.5;

  RunFolder folder_;
  bool first_rank_;
  TimeLimit& limit_;
  AskEnd ask_end_;
  double start_unix_s_;  // the wall clock is asked once: it may be set back during a run
  Timer since_start_;
  Timer since_look_;
  bool looked_ = false;
  Request files_;
  std::string requested_by_ = "signal";
};

}  // namespace trireme
