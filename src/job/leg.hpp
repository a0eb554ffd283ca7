#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "job/place.hpp"
#include "job/verdict.hpp"

/// An attempt is one start of a run, from the begin of its processes to their exit. Each requeue,
/// restart of the processes or new submission begins another attempt. The event log numbers
/// attempts.
namespace trireme {

struct LegStart {
  JobPlace place;
  std::vector<std::string> nodes;  // host names, each once
  std::int64_t ranks = 0;
  std::map<std::string, std::string> hashes;  // "binary", "config", "data"
  std::int64_t resumed_from = -1;             // step of its own checkpoint; -1: none
  std::optional<double> job_end{};            // Unix time at which the scheduler ends the job
};

/// The first step of an attempt is complete.
struct LegReady {
  std::int64_t step = 0;
  double start_s = 0;  // seconds from the begin of the processes
};

/// A stop request or save request.
struct LegRequest {
  std::string want;  // "stop", "save"
  std::string by;    // "STOP", "SAVE", "time limit", "SIGUSR2", "signal" (to another rank)
  std::int64_t step = 0;
};

struct LegEnd {
  std::string state;  // "done", "stopped", "failed"
  int exit_code = 0;
  std::int64_t step = 0;
};

/// The root cause of a failed attempt. A rank that only lost a peer is never the root cause.
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
  std::string verdict{};  // "done", "requeue", "restart" (in place), "stop"
  std::string why{};
  int exit_code = 0;
  RootCause root_cause{};
  std::int64_t step_before = -1;  // newest committed step at the start of the attempt; -1: none
  std::int64_t step_after = -1;   // newest committed step now
  std::int64_t failures_in_a_row = 0;
  std::vector<std::string> exclude{};  // hosts that the next attempt should not use
  bool is_requeued = false;            // the scheduler requeues the job by itself
};

/// The events of one attempt.
struct Leg {
  std::int64_t number = 0;
  double began_at = 0;  // Unix time of the first line
  double last_at = 0;   // Unix time of the last line
  std::optional<LegStart> start;
  std::optional<LegReady> ready;
  double ready_at = 0;
  std::int64_t committed = -1;  // newest step that this attempt committed
  double committed_at = 0;
  std::vector<LegRequest> requests;
  std::vector<Verdict> verdicts;
  std::optional<LegEnd> end;
  double ended_at = 0;
  std::optional<Decision> decision;
  JobPlace decided_place;  // for an attempt without a start event

  [[nodiscard]] const JobPlace& place() const { return start ? start->place : decided_place; }

  /// Returns the last stop request; null if there is none.
  [[nodiscard]] const LegRequest* stop_request() const;
};

/// Returns the failure reports among `files` that belong to `leg` and are not recorded in it yet.
std::vector<Verdict> not_told_yet(const std::vector<Verdict>& files, const Leg& leg);

}  // namespace trireme
