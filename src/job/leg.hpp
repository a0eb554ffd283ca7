#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "job/place.hpp"
#include "job/verdict.hpp"

/// A leg: one start of a run, from its processes' begin to their end. A job that goes back in the
/// queue, starts its step again or is submitted anew adds one; the journal tells them apart by
/// number.
namespace trireme {

struct LegStart {
  JobPlace place;
  std::vector<std::string> nodes;  // host names, each once
  std::int64_t ranks = 0;
  std::map<std::string, std::string> hashes;  // "binary", "config", "data"
  std::int64_t resumed_from = -1;             // its own checkpoint's step; -1: none
  std::optional<double> job_end{};            // Unix time at which the scheduler ends the job
};

/// The first step of a leg is done.
struct LegReady {
  std::int64_t step = 0;
  double start_s = 0;  // since its processes began
};

/// What a leg was asked for.
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

/// Why a leg failed: the cause, never who only heard of it.
struct RootCause {
  std::int64_t rank = -1;  // -1: not known, or none
  std::string host;
  std::string kind;  // "killed", "oom", "error", "hang", "node", "request"; "" when it was done
  std::string message;
};

/// Decision::why of a run that scancel ended.
inline constexpr const char* kWhyCancelled = "the job was cancelled (scancel)";

/// What becomes of a run after a leg.
struct Decision {
  std::string verdict{};  // "done", "requeue", "restart" (in place), "stop"
  std::string why{};
  int exit_code = 0;
  RootCause root_cause{};
  std::int64_t step_before = -1;  // newest committed step when the leg began; -1: none
  std::int64_t step_after = -1;   // and now
  std::int64_t failures_in_a_row = 0;
  std::vector<std::string> exclude{};  // hosts that the next leg should not have
  bool is_requeued = false;            // the scheduler has put the job back by itself
};

/// What the journal tells of one leg.
struct Leg {
  std::int64_t number = 0;
  double began_at = 0;  // Unix time of its first line
  double last_at = 0;   // and of its last
  std::optional<LegStart> start;
  std::optional<LegReady> ready;
  double ready_at = 0;
  std::int64_t committed = -1;  // newest step that it committed
  double committed_at = 0;
  std::vector<LegRequest> requests;
  std::vector<Verdict> verdicts;
  std::optional<LegEnd> end;
  double ended_at = 0;
  std::optional<Decision> decision;
  JobPlace decided_place;  // of a leg without a start

  /// Whose leg it is.
  [[nodiscard]] const JobPlace& place() const { return start ? start->place : decided_place; }

  /// Asked to stop by what there is a request for: the last of them.
  [[nodiscard]] const LegRequest* stop_request() const;
};

/// Of verdicts that ranks left as files those of `leg`, which it does not have yet.
std::vector<Verdict> not_told_yet(const std::vector<Verdict>& files, const Leg& leg);

}  // namespace trireme
