#include "job/finish/finish.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>
#include <thread>

#include "checkpoint/disk/run_lock.hpp"
#include "checkpoint/format/folder.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "core/timer.hpp"
#include "job/attempt.hpp"
#include "job/event_log.hpp"

namespace trireme::job {
namespace {

constexpr std::int64_t kMaxFailures = 3;
constexpr double kPatience_s =
    600;  // maximum wait for free space, because a full disk may have ended the attempt
constexpr double kLeave_s = 20;  // time that the job script needs after the decision
constexpr std::chrono::seconds kPause{1};

void check_folder(const RunDirectory& folder, bool dry_run) {
  if (folder.holds_run()) return;
  std::error_code code;
  const bool exists = std::filesystem::is_directory(folder.root, code);
  if (dry_run && !(exists && std::filesystem::exists(folder.event_log(), code)))
    fail(ErrorKind::data, "{} is not a run directory", folder.root.string());
  if (!exists || folder.is_blank()) return;  // other problems are reported by prepare()
  folder.refuse_foreign();
}

/// Adds the failure reports that are not in the event log yet to their attempt, and returns all
/// attempts.
std::vector<Attempt> with_reports(std::vector<Attempt> attempts, const RunDirectory& folder,
                                  const AttemptId& attempt_id) {
  if (const auto mine = ended_attempt(attempts, attempt_id)) {
    Attempt& attempt = attempts[*mine];
    for (const FailureReport& one : unrecorded_reports(read_failure_reports(folder), attempt))
      attempt.failure_reports.push_back(one);
  }
  return attempts;
}

std::int64_t newest_checkpoint(const RunDirectory& folder) {
  const std::vector<std::int64_t> steps = checkpoint::list_steps(folder.checkpoints());
  return steps.empty() ? -1 : steps.front();
}

/// If this attempt has no events except a decision, returns that decision. With it, a repeated call
/// does not count a second failure.
std::optional<Decision> decided_before(const std::vector<Attempt>& attempts,
                                       const AttemptId& attempt_id) {
  if (attempts.empty() || attempts.back().start || attempt_id.job.empty()) return std::nullopt;
  return attempts.back().decided_id == attempt_id ? attempts.back().decision : std::nullopt;
}

void log_decision(const RunDirectory& folder, const FinishFacts& facts, const Decision& decision,
                  EventLog& event_log) {
  if (const auto mine = ended_attempt(event_log.attempts(), facts.attempt_id)) {
    const Attempt& attempt = event_log.attempts()[*mine];
    for (const FailureReport& one : unrecorded_reports(read_failure_reports(folder), attempt))
      event_log.failure_report(one, attempt.number);
  } else {
    event_log.begin_attempt();
  }
  event_log.decision(decision, facts.attempt_id);
}

/// Writes status.json for an attempt that could not write it itself.
void complete_status(const RunDirectory& folder, const FinishFacts& facts, const Decision& decision,
                     const std::vector<Attempt>& attempts) {
  const auto mine = ended_attempt(attempts, facts.attempt_id);
  const bool ended_itself = mine && attempts[*mine].end;
  if (ended_itself || !std::filesystem::exists(folder.status())) return;
  const std::int64_t step = mine ? attempts[*mine].committed : -1;
  write_status(folder, "failed", decision.exit_code, std::max(step, decision.step_before));
}

/// Returns the maximum time to wait for free space, in seconds.
double patience_s(double now_s) {
  const auto end = job_end_from_environment();
  return end ? std::clamp(*end - now_s - kLeave_s, 0.0, kPatience_s) : kPatience_s;
}

Decision decide_and_write(const RunDirectory& folder, FinishFacts facts, bool dry_run) {
  facts.newest_checkpoint = newest_checkpoint(folder);
  facts.start_reports = read_failure_reports(folder);
  std::erase_if(facts.start_reports,
                [&](const FailureReport& one) { return one.attempt_id != facts.attempt_id; });
  const auto decided = [&](const std::vector<Attempt>& attempts) {
    return decide(with_reports(attempts, folder, facts.attempt_id), facts);
  };
  Decision first = decided(read_event_log(folder.event_log()).attempts);
  std::error_code code;
  const bool is_refusal =
      first.exit_code == exit_code(ErrorKind::usage) && !std::filesystem::exists(folder.root, code);
  if (dry_run || is_refusal) return first;  // do not create files for an attempt that never began
  folder.prepare();
  std::optional<checkpoint::RunLock> lock;
  const checkpoint::RunLockOptions options{.job_id = facts.attempt_id.job,
                                           .order = facts.attempt_id.order() + 1};
  const auto in_use = comm::capture([&] { lock.emplace(folder.root, options); });
  if (in_use && in_use->kind() != ErrorKind::usage) throw Error(*in_use);
  if (in_use) {  // another process trains in this directory
    first.action = "stop";
    first.why = in_use->what();
    return first;
  }
  EventLog event_log(folder.event_log());
  event_log.open_newest_attempt([&lock] { return lock->is_held(); });
  const auto before = decided_before(event_log.attempts(), facts.attempt_id);
  const Decision decision =
      before ? *before : decided(event_log.attempts());  // decide again under the lock
  if (!before) log_decision(folder, facts, decision, event_log);
  complete_status(folder, facts, decision, event_log.attempts());
  return decision;
}

constexpr std::streamoff kTailBytes = std::streamoff{64} << 10;
constexpr std::string_view kError = "trireme: error: ";

}  // namespace

Decision finish_attempt(const RunDirectory& folder, FinishFacts facts, bool dry_run) {
  check_folder(folder, dry_run);
  facts.now_s = unix_time_s();
  const double patience = dry_run ? 0 : patience_s(facts.now_s);
  const Timer timer;
  for (bool has_warned = false;; has_warned = true) {
    try {
      return decide_and_write(folder, facts, dry_run);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::resource || timer.seconds() >= patience) throw;
      if (!has_warned)
        log::warn(formatted("{}: trying again for {} s", error.what(),
                            static_cast<std::int64_t>(patience)));
    }
    std::this_thread::sleep_for(kPause);
  }
}

std::optional<std::int64_t> max_failures_from_environment() {
  const char* text = std::getenv("TRIREME_MAX_FAILURES");
  if (text == nullptr || *text == '\0') return kMaxFailures;
  if (std::string_view(text) == "unlimited") return std::nullopt;
  const auto number = parse_integer(text);
  if (number && *number >= 0) return number;
  log::warn(formatted("TRIREME_MAX_FAILURES = {}, must be a number or unlimited; using {}", text,
                      kMaxFailures));
  return kMaxFailures;
}

std::string last_error_in(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return "";
  in.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(in.tellg()) - kTailBytes));
  std::string last;
  for (std::string line; std::getline(in, line);) {
    // The job script begins the output of each start with this line.
    if (line.starts_with("job       ") && line.find(", restart ") != std::string::npos)
      last.clear();
    const std::size_t at = line.find(kError);
    if (at != std::string::npos) last = line.substr(at + kError.size());
  }
  return last;
}

}  // namespace trireme::job
