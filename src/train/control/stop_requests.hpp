#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/timer.hpp"
#include "core/writer_thread.hpp"
#include "job/run_directory.hpp"

namespace trireme::train {

/// Decides when a run must begin its last save before the scheduler's time limit. The margin is two
/// steps, one validation, twice the longest save (before the first save: an estimate from the state
/// size) and time to exit.
class TimeLimit {
 public:
  /// `end_s`: Unix time of the job's end; nullopt: no limit. `state_bytes`: bytes that this rank
  /// saves.
  TimeLimit(std::optional<double> end_s, double state_bytes);

  void step_took(double seconds);
  void validation_took(double seconds);
  void save_took(double seconds);

  [[nodiscard]] double margin_s() const;
  [[nodiscard]] bool reached(double now_s) const;

  /// Ignores a limit in the past: this job inherited it from the environment of another job.
  void forget_past(double now_s);

  /// Sets a new end of the job that the scheduler has reported.
  void moved_to(double end_s);

 private:
  std::optional<double> end_s_;
  double step_s_ = 0;  // decaying maximum, because the first step is slow
  double validation_s_ = 0;
  double save_s_;
};

/// All requests to stop or save a run: signals on any rank; on rank 0 also the files STOP and SAVE
/// in the run directory and the job's time limit. The file PROFILE requests a profile.
class StopRequests {
 public:
  /// Asks the scheduler for the current end of the job (Unix time); nullopt: no answer.
  using AskEnd = std::function<std::optional<double>()>;

  /// `limit` must outlive this object. `ask_end` is called before a stop for the time limit,
  /// because the limit may have changed.
  StopRequests(job::RunDirectory folder, bool first_rank, TimeLimit& limit, AskEnd ask_end = {});

  struct Request {
    bool stop = false;
    bool save = false;
    bool profile = false;
  };

  /// Returns the requests before a step. Reads the run directory at most twice a second, on a
  /// thread of its own. If the file system is frozen, the answer comes in a later call.
  [[nodiscard]] Request poll();

  /// Returns true if a signal or a file requests a stop. Only poll() checks the time limit, which
  /// counts in whole steps.
  [[nodiscard]] bool stop_requested();

  /// Returns the source of the stop request on this rank: "STOP" (wins over others), "SIGTERM",
  /// "time limit", or "signal" if another rank received it.
  [[nodiscard]] const std::string& requested_by() const { return requested_by_; }

  /// Returns requested_by() as text for messages.
  [[nodiscard]] std::string reason() const;

  /// Returns the content of the file PROFILE on rank 0 and removes the file. Returns nullopt if the
  /// file cannot be read.
  [[nodiscard]] std::optional<std::string> take_profile_request();

  /// Removes the files of fulfilled requests. If a file STOP is removed that was not read before,
  /// requested_by() returns it.
  void fulfilled(bool stopped);

 private:
  void look();
  /// Returns true if the last save must begin now. Asks the scheduler for a changed limit first.
  [[nodiscard]] bool at_time_limit();

  /// The files that a look at the run directory has found.
  struct Look {
    std::atomic<bool> done = false;
    bool stop = false;
    bool save = false;
    bool profile = false;
  };

  static constexpr double kLook_s = 0.5;
  static constexpr double kAnswer_s = 0.05;  // longest time that a step waits for a look

  job::RunDirectory folder_;
  bool first_rank_;
  TimeLimit& limit_;
  AskEnd ask_end_;
  double start_unix_s_;  // read once, because the wall clock may change during a run
  Timer since_start_;
  Timer since_look_;
  bool looked_ = false;
  Request files_;
  bool keeps_profile_file_ = false;  // the file of the last profile request cannot be removed
  std::shared_ptr<Look> looking_;
  WriterThread looker_;
  std::string requested_by_ = "signal";
};

}  // namespace trireme::train
