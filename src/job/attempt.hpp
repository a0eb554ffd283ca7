#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/files/json.hpp"
#include "job/run_directory.hpp"

/// An attempt is one start of a run's processes until they exit. A requeue, a restart of the
/// processes in the same job and a new submission each begin another attempt. The event log numbers
/// attempts.
namespace trireme::job {

/// Identifies an attempt among the attempts of its job. Two attempts may overlap for a moment,
/// because a later attempt can take the lock while an earlier one still runs
/// (checkpoint/disk/run_lock.hpp).
struct AttemptId {
  std::string job;           // job id of the scheduler; "" outside a job
  std::int64_t restart = 0;  // number of requeues of the job
  std::int64_t attempt = 0;  // number of starts of the processes since the last requeue

  /// Reads the scheduler's variables (scheduler/scheduler.hpp) and TRIREME_ATTEMPT.
  static AttemptId from_environment();

  /// Returns a number that grows by two from one attempt of a job to the next. `job finish` takes
  /// the lock with the number between the attempt that has ended and the next attempt.
  [[nodiscard]] std::uint64_t order() const;

  friend bool operator==(const AttemptId&, const AttemptId&) = default;
};

/// Reads the scheduler's environment variable with the end time of the job. Returns it as Unix
/// time; none if the variable is not set or is not a number above 0.
std::optional<double> job_end_from_environment();

/// Reads the scheduler's environment variable with the time at which the job got its nodes. Returns
/// it as Unix time; none if the variable is not set or is not a number above 0.
std::optional<double> job_start_from_environment();

/// The failure report of one rank: `verdicts/rank-NNNNN.json`. Each rank writes its own report; the
/// writer of the event log collects the reports (event_log.hpp). A rank that was killed leaves no
/// report, but the reports of its peers name this rank.
struct FailureReport {
  int rank = 0;
  std::string host;
  std::string kind;  // "error" (thrown by this rank), "hang", or "peer" (another rank failed)
  int exit_code = 0;
  std::int64_t step = 0;  // last completed step
  std::string message;

  /// The rank that failed, for kind "peer" if it is known.
  struct Lost {
    int rank = -1;  // -1: unknown
    std::string host;
    std::string kind;  // "killed": exited without a report; "hang"; "error"
  };

  Lost lost{};
  AttemptId attempt_id{};        // identifies the attempt
  std::optional<double> time{};  // Unix time of the failure; absent in reports of older versions
};

/// Writes the report with its time (default: now) and the attempt of this process. Never throws, because
/// this process is about to exit.
void write_failure_report(const RunDirectory& folder, const FailureReport& failure_report) noexcept;

/// Returns the reports in the directory, sorted by rank. Skips files that are not reports.
std::vector<FailureReport> read_failure_reports(const RunDirectory& folder);

/// Deletes the reports of the last attempt. Rank 0 calls it at the start of an attempt.
void clear_failure_reports(const RunDirectory& folder);

/// These functions write an attempt id, or a report without its attempt id, as members of a JSON
/// object, and read them back. The reading functions throw Error(data) that names `where`.
void put_attempt_id(Json& object, const AttemptId& attempt_id);
AttemptId take_attempt_id(const Json& object, const std::string& where);
void put_failure_report(Json& object, const FailureReport& failure_report);
FailureReport take_failure_report(const Json& object, const std::string& where);

struct AttemptStart {
  AttemptId attempt_id;
  std::vector<std::string> nodes;  // host names, each once
  std::int64_t ranks = 0;
  std::map<std::string, std::string> hashes;  // "binary", "config", "data"
  std::int64_t resumed_from = -1;   // step of the checkpoint of this run that was loaded; -1: none
  std::optional<double> job_end{};  // Unix time at which the scheduler ends the job
  std::optional<double> job_start{};  // Unix time at which the job got its nodes
  std::optional<double> age_s{};      // seconds from the start of the processes to this event
};

/// The event that the first step of an attempt is complete.
struct AttemptReady {
  std::int64_t step = 0;
  double start_s = 0;  // seconds from the start of the processes
};

/// The event that a stop or a save was requested.
struct AttemptRequest {
  std::string want;  // "stop", "save"
  std::string by;    // "STOP", "SAVE", "time limit", "SIGUSR2", "signal" (to another rank)
  std::int64_t step = 0;
};

struct AttemptEnd {
  std::string state;  // "done", "stopped", "failed"
  int exit_code = 0;
  std::int64_t step = 0;
  std::string reason{};  // why a run that is done has not reached its last step; "": it has
};

/// The root cause of a failed attempt. If a rank failed only because it lost a peer, that rank is
/// never the root cause.
struct RootCause {
  std::int64_t rank = -1;  // -1: unknown or none
  std::string host;
  std::string kind;  // "killed", "oom", "error", "hang", "node", "request"; "" if the run is done
  std::string message;
};

/// Decision::why after scancel.
inline constexpr const char* kWhyCancelled = "the job was cancelled (scancel)";

/// The restart decision after an attempt.
struct Decision {
  std::string action{};  // "done", "requeue", "restart" (in place), "stop"
  std::string why{};
  int exit_code = 0;
  RootCause root_cause{};
  std::int64_t step_before = -1;  // newest committed step when the attempt started; -1: none
  std::int64_t step_after = -1;   // newest committed step now
  std::int64_t failures_in_a_row = 0;
  std::vector<std::string> exclude{};  // hosts that the next attempt should not use
  bool is_requeued = false;  // the scheduler requeues the job itself, so the job script must not
};

/// The events of one attempt.
struct Attempt {
  std::int64_t number = 0;
  double began_at = 0;  // Unix time of the first line
  double last_at = 0;   // Unix time of the last line
  std::optional<AttemptStart> start;
  std::optional<AttemptReady> ready;
  double ready_at = 0;
  std::int64_t committed = -1;  // newest step that this attempt committed
  double committed_at = 0;
  std::vector<AttemptRequest> requests;
  std::vector<FailureReport> failure_reports;
  std::optional<AttemptEnd> end;
  double ended_at = 0;
  std::optional<Decision> decision;
  double decided_at = 0;
  AttemptId decided_id;  // id of an attempt that has a decision but no start event

  [[nodiscard]] const AttemptId& id() const { return start ? start->attempt_id : decided_id; }

  /// Returns the last stop request; null if there is none.
  [[nodiscard]] const AttemptRequest* stop_request() const;
};

/// Returns the failure reports among `files` that belong to the attempt `attempt` but are not in its
/// events yet.
std::vector<FailureReport> unrecorded_reports(const std::vector<FailureReport>& files,
                                              const Attempt& attempt);

}  // namespace trireme::job
