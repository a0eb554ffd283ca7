#include "job/finish/decide.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <limits>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::job {
namespace {

/// Exit codes after which a restart would fail in the same way: internal error, usage, data,
/// divergence.
constexpr std::array kIncurable{1, 2, 3, 6};

bool is_incurable(int code) {
  return std::find(kIncurable.begin(), kIncurable.end(), code) != kIncurable.end();
}

/// The facts about an attempt that the decision depends on.
struct Ending {
  int code = 0;              // exit code of the program; 5 for a crash
  std::int64_t before = -1;  // newest committed step at the start
  bool was_asked = false;    // stopped on request
  bool by_stop_file = false;
  bool outlived_start = false;  // trained longer than its start took
  std::string asked_by;
};

/// Returns the exit code of an attempt without events. If the launcher's code is one that a Trireme
/// program returns, returns this code; otherwise returns the code of a crash.
int code_without_events(int srun_code) {
  const bool on_purpose = is_incurable(srun_code) || srun_code == exit_code(ErrorKind::resource) ||
                          srun_code == kExitStopped;
  return on_purpose ? srun_code : exit_code(ErrorKind::comm);
}

int code_of(const Attempt& attempt) {
  if (attempt.end) return attempt.end->exit_code;
  const auto error = std::find_if(attempt.failure_reports.begin(), attempt.failure_reports.end(),
                                  [](const FailureReport& one) { return one.kind == "error"; });
  return error == attempt.failure_reports.end() ? exit_code(ErrorKind::comm) : error->exit_code;
}

Ending ending_of(const Attempt& attempt, std::int64_t committed_before, double now_s) {
  Ending ending;
  ending.code = code_of(attempt);
  ending.before = attempt.start ? attempt.start->resumed_from : committed_before;
  const AttemptRequest* request = attempt.stop_request();
  ending.was_asked = ending.code == kExitStopped;
  ending.asked_by = request == nullptr ? "signal" : request->by;
  ending.by_stop_file = ending.was_asked && ending.asked_by == "STOP";
  const double until = attempt.end ? attempt.ended_at : now_s;
  ending.outlived_start = attempt.ready && until - attempt.ready_at > attempt.ready->start_s;
  return ending;
}

bool has_same_cause(const Attempt& a, const Attempt& b) {
  return !a.start || !b.start || a.start->hashes == b.start->hashes;
}

/// Returns the number of failures in a row after this attempt, if there were `failures` before it.
/// If the attempt has no decision, its job was killed before the decision; then uses the events.
std::int64_t failures_after(const Attempt& attempt, std::int64_t failures) {
  if (attempt.decision) return attempt.decision->failures_in_a_row;
  if (attempt.id().job.empty()) return failures;  // started without a scheduler
  const Ending ending = ending_of(attempt, -1, attempt.last_at);
  const bool helped = ending.was_asked ? ending.outlived_start : attempt.committed > ending.before;
  return ending.code == kExitDone || ending.by_stop_file || helped ? 0 : failures + 1;
}

std::int64_t failures_before(const std::vector<Attempt>& attempts, std::size_t end) {
  std::int64_t failures = 0;
  for (std::size_t i = 0; i < end; ++i) {
    if (i > 0 && !has_same_cause(attempts[i - 1], attempts[i])) failures = 0;
    failures = failures_after(attempts[i], failures);
  }
  if (end > 0 && end < attempts.size() && !has_same_cause(attempts[end - 1], attempts[end]))
    return 0;
  return failures;
}

/// If a rank was killed or hung on a lost node, changes the cause to the lost node.
void blame_lost_node(const std::vector<std::string>& lost, RootCause& cause) {
  if (lost.empty() || (cause.kind != "killed" && cause.kind != "hang")) return;
  const bool is_known = std::find(lost.begin(), lost.end(), cause.host) != lost.end();
  if (!is_known && !cause.host.empty()) return;
  cause.kind = "node";
  cause.host = is_known ? cause.host : lost.front();
}

std::string steps_text(std::int64_t before, std::int64_t after) {
  const auto name = [](std::int64_t step) { return step < 0 ? "none" : cat(step); };
  return formatted("the last committed step was {} before and is {} now", name(before),
                   name(after));
}

Decision ended(Decision decision, const char* action, const std::string& why, int code) {
  decision.action = action;
  decision.why = why;
  decision.exit_code = code;
  return decision;
}

/// Returns the host to exclude from the next attempt: a lost node, or a host on which a rank was
/// killed or hung in this attempt and in the previous one.
std::vector<std::string> hosts_to_leave(const std::vector<Attempt>& attempts, std::size_t end,
                                        const RootCause& cause) {
  if (cause.host.empty() || cause.kind == "request") return {};
  if (cause.kind == "node") return {cause.host};
  if (end == 0 || !attempts[end - 1].decision) return {};
  const RootCause& last = attempts[end - 1].decision->root_cause;
  const bool is_machine = cause.kind == "killed" || cause.kind == "hang";
  if (is_machine && last.host == cause.host && last.kind == cause.kind) return {cause.host};
  return {};
}

bool is_out_of_memory(const FailureReport& failure_report) {
  std::string text = failure_report.message;
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return failure_report.exit_code == exit_code(ErrorKind::resource) &&
         text.find("out of memory") != std::string::npos;
}

RootCause own_cause(const FailureReport& one) {
  const bool is_oom = one.kind == "error" && is_out_of_memory(one);
  return {one.rank, one.host, is_oom ? "oom" : one.kind, one.message};
}

RootCause lost_rank(const FailureReport& one) {
  return {one.lost.rank, one.lost.host, one.lost.kind, one.message};
}

struct CauseRow {
  std::function<bool(const FailureReport&)> holds;
  std::function<RootCause(const FailureReport&)> cause;
};

bool is_comm(const FailureReport& one) {
  return one.exit_code == exit_code(ErrorKind::comm);
}

/// The rules in order of priority: the first rule that matches a failure report gives the cause. If
/// it matches several reports, the earliest report gives the cause.
const std::array<CauseRow, 6>& rows() {
  static const std::array<CauseRow, 6> table{
      {{[](const FailureReport& one) { return one.kind == "error" && !is_comm(one); }, own_cause},
       {[](const FailureReport& one) { return one.kind == "hang"; }, own_cause},
       // A rank on the same node has seen the out-of-memory killer of the kernel.
       {[](const FailureReport& one) { return one.lost.kind == "oom"; }, lost_rank},
       {[](const FailureReport& one) { return one.lost.rank >= 0; }, lost_rank},
       {[](const FailureReport& one) { return one.kind == "error"; }, own_cause},  // a timeout
       {[](const FailureReport& one) { return one.exit_code != 0; }, own_cause}}};
  return table;
}

}  // namespace

std::optional<std::size_t> ended_attempt(const std::vector<Attempt>& attempts,
                                         const AttemptId& attempt_id) {
  if (attempts.empty()) return std::nullopt;
  const Attempt& newest = attempts.back();
  if (!attempt_id.job.empty() && (!newest.start || newest.id() != attempt_id)) return std::nullopt;
  return attempts.size() - 1;
}

Decision decide(const std::vector<Attempt>& attempts, const FinishFacts& facts) {
  const std::optional<std::size_t> mine = ended_attempt(attempts, facts.attempt_id);
  Decision decision;
  decision.step_after = facts.newest_checkpoint;
  Ending ending;
  if (mine) {
    ending = ending_of(attempts[*mine], facts.newest_checkpoint, facts.now_s);
  } else {
    ending.code = code_without_events(facts.srun_code);
    ending.before = facts.newest_checkpoint;
    ending.was_asked = ending.code == kExitStopped;
    ending.asked_by = "signal";
  }
  decision.step_before = ending.before;
  const std::size_t end = mine ? *mine : attempts.size();
  decision.failures_in_a_row = failures_before(attempts, end);
  if (ending.code == kExitDone) {
    decision.failures_in_a_row = 0;
    const bool is_early = mine && attempts[*mine].end && !attempts[*mine].end->reason.empty();
    return ended(decision, "done",
                 is_early ? attempts[*mine].end->reason : "the run has completed its last step",
                 kExitDone);
  }
  if (ending.was_asked) {
    decision.root_cause = {-1, "", "request", ending.asked_by};
  } else if (!mine && is_incurable(ending.code)) {
    decision.root_cause = {-1, "", "error",
                           facts.refusal.empty()
                               ? "refused before it began: see the output of the job"
                               : "refused before it began: " + facts.refusal};
  } else {
    Attempt lost_start;
    lost_start.failure_reports = facts.start_reports;
    decision.root_cause = root_cause_of(mine ? attempts[*mine] : lost_start, facts.srun_code);
    blame_lost_node(facts.lost_nodes, decision.root_cause);
    if (facts.job.is_out_of_memory() && decision.root_cause.kind == "killed")
      decision.root_cause.kind = "oom";
  }
  const int code = ending.code;

  const AttemptId& newest = attempts.empty() ? facts.attempt_id : attempts.back().id();
  if (!facts.attempt_id.job.empty() && newest.job == facts.attempt_id.job &&
      newest.order() > facts.attempt_id.order())
    return ended(decision, "stop", "a later attempt of this job has taken over the run", code);
  if (ending.by_stop_file) {
    decision.failures_in_a_row = 0;
    return ended(decision, "stop", "the file STOP requested it", kExitDone);
  }
  if (facts.job.is_requeued(facts.attempt_id.restart)) {
    decision.is_requeued = true;
    return ended(decision, "requeue", "the scheduler requeues the job by itself", code);
  }
  if (facts.job.is_cancelled(facts.attempt_id.restart)) {
    if (!ending.was_asked) decision.root_cause = {-1, "", "request", "scancel"};
    return ended(decision, "stop", kWhyCancelled, code);
  }
  if (is_incurable(code))
    return ended(decision, "stop", "a restart would fail in the same way", code);

  const bool at_limit = facts.job.is_at_time_limit();
  const bool was_asked = ending.was_asked || at_limit;
  if (at_limit && !ending.was_asked)
    decision.root_cause = {-1, "", "request", "time limit, before the save was complete"};
  const bool helped =
      was_asked ? ending.outlived_start : decision.step_after > decision.step_before;
  decision.failures_in_a_row = helped ? 0 : decision.failures_in_a_row + 1;
  decision.exclude = hosts_to_leave(attempts, end, decision.root_cause);
  const std::string steps = steps_text(decision.step_before, decision.step_after);
  if (!helped && facts.max_failures && decision.failures_in_a_row >= *facts.max_failures) {
    return ended(decision, "stop",
                 formatted("{} attempts in a row made no progress (TRIREME_MAX_FAILURES {}); {}",
                           decision.failures_in_a_row, *facts.max_failures, steps),
                 kExitNoProgress);
  }
  std::string why;
  if (helped) {
    why = was_asked ? "it trained longer than its start took" : steps;
  } else {
    why = formatted("failure {} in a row, {}", decision.failures_in_a_row,
                    was_asked ? "it ended before it had trained as long as its start took" : steps);
  }
  if (facts.may_restart && !was_asked) return ended(decision, "restart", why, code);
  if (!facts.job.may_requeue) {
    return ended(
        decision, "stop",
        formatted("{}; but this job may not be requeued (Requeue=0): run the same command again, "
                  "or use trireme submit --chain N",
                  why),
        code);
  }
  return ended(decision, "requeue", why, code);
}

RootCause root_cause_of(const Attempt& attempt, int srun_code) {
  // A later failure is often the consequence of an earlier one. For example, a rank that hung and
  // continues reports that its peers are lost, which have exited because of the hang.
  std::vector<FailureReport> reports = attempt.failure_reports;
  const auto time_of = [](const FailureReport& one) {
    return one.time.value_or(std::numeric_limits<double>::infinity());
  };
  std::ranges::stable_sort(reports, {}, time_of);
  for (const CauseRow& row : rows()) {
    const auto found = std::ranges::find_if(reports, row.holds);
    if (found == reports.end()) continue;
    RootCause cause = row.cause(*found);
    if (cause.kind == "peer") cause.kind = "error";
    return cause;
  }
  return {-1, "", "killed",
          formatted("no rank reported a failure; the launcher exited with {}", srun_code)};
}

}  // namespace trireme::job
