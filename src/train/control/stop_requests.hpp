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

  /// `ask_end` is called before a stop for the time limit: somebody may have changed the limit.
  StopRequests(RunFolder folder, bool first_rank, TimeLimit limit, AskEnd ask_end = {});

  struct Wish {
    bool stop = false;
    bool save = false;
  };

  /// Before every step. The folder is looked at twice a second at most.
  [[nodiscard]] Wish poll();

  /// Whether somebody wants a stop now; the time limit, which reckons with whole steps, aside.
  [[nodiscard]] bool asked();

  /// What made poll() say stop, on this rank: "STOP" (whatever else asked, too), "SIGTERM", "time
  /// limit"; else "signal", to another rank.
  [[nodiscard]] const std::string& asked_by() const { return asked_by_; }

  /// The same in words.
  [[nodiscard]] std::string reason() const;

  TimeLimit& limit() { return limit_; }

  /// What was asked for is on disk: the files go. A file STOP that nobody has looked at yet is told
  /// by asked_by() from here on.
  void fulfilled(bool stopped);

 private:
  void look();
  /// True if the last save must begin now, also by what the scheduler says.
  [[nodiscard]] bool at_time_limit();

  static constexpr double kLook_s = 0.5;

  RunFolder folder_;
  bool first_rank_;
  TimeLimit limit_;
  AskEnd ask_end_;
  double start_unix_s_;  // the wall clock is asked once: it may be set back during a run
  Timer since_start_;
  Timer since_look_;
  bool looked_ = false;
  Wish files_;
  std::string asked_by_ = "signal";
};

}  // namespace trireme
