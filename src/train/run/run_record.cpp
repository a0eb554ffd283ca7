#include "train/run/run_record.hpp"

#include <algorithm>

#include "checkpoint/format/folder.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/log.hpp"
#include "core/process/process_age.hpp"
#include "core/timer.hpp"
#include "job/attempt.hpp"
#include "train/control/stop_requests.hpp"

namespace trireme::train {
namespace {

/// Runs `write` and turns an error into a warning, because a failed record must not end a healthy
/// run.
void warn_on_error(const std::function<void()>& write) {
  if (const auto error = comm::capture(write)) log::warn(error->what());
}

std::vector<std::string> without_duplicates(const std::vector<std::string>& hosts) {
  std::vector<std::string> nodes;
  for (const std::string& host : hosts) {
    if (std::find(nodes.begin(), nodes.end(), host) == nodes.end()) nodes.push_back(host);
  }
  return nodes;
}

}  // namespace

RunRecord::RunRecord(const RunRequest& run)
    : run_(run),
      event_log_(run.event_log ? run.event_log
                               : std::make_shared<job::EventLog>(run.folder.event_log())),
      step_(run.start.kind == RunStart::Kind::resume_run ? run.start.step() : 0) {}

void RunRecord::claim() {
  comm::all_or_none(run_.ranks.world, [&] {
    if (run_.ranks.world.rank() == 0) claim_directory();
  });
  claimed_ = true;
}

void RunRecord::claim_directory() {
  const job::RunDirectory& folder = run_.folder;
  std::error_code refused;  // prepare() reports an invalid path
  had_root_ = std::filesystem::exists(folder.root, refused);
  had_run_ = had_root_ && folder.holds_run();
  folder.prepare();
  const job::AttemptId& attempt_id = run_.ranks.attempt_id;
  lock_.emplace(folder.root,
                checkpoint::RunLockOptions{.job_id = attempt_id.job, .order = attempt_id.order()});
  // If the run is killed after this line, the next attempt recognizes the directory as its run.
  if (!std::filesystem::exists(folder.status())) show("running", kExitDone, -1);
  remove_temporaries(folder.root);
  remove_temporaries(folder.checkpoints());
  if (run_.config.checkpoint.resume == "never" && !run_.start.was_started_fresh() &&
      !checkpoint::list_steps(folder.checkpoints()).empty()) {
    fail(
        ErrorKind::usage,
        "checkpoint.resume = never, but {} holds checkpoints; give a new --run, or --resume auto to resume this run",
        folder.checkpoints().string());
  }
}

void RunRecord::start(std::int64_t own_step, std::map<std::string, std::string> hashes) {
  event_log_->open([this] { return lock_ && lock_->is_held(); });
  if (!event_log_->attempts().empty()) {
    const job::Attempt& before = event_log_->attempts().back();
    for (const job::FailureReport& failure_report :
         job::unrecorded_reports(job::read_failure_reports(run_.folder), before))
      event_log_->failure_report(failure_report, before.number);
  }
  event_log_->start({run_.ranks.attempt_id, without_duplicates(hosts_), run_.ranks.world.size(),
                     std::move(hashes), own_step, job::job_end_from_environment(),
                     job::job_start_from_environment(), process_age_s()});
  started_ = true;
}

void RunRecord::begin(std::int64_t step, std::int64_t own_step,
                      std::map<std::string, std::string> hashes) {
  hosts_ = comm::gather_texts(run_.ranks.world, run_.ranks.launch.hostname);
  begun_ = true;
  step_ = step;
  if (run_.ranks.world.rank() != 0) return;
  start(own_step, std::move(hashes));
  job::clear_failure_reports(run_.folder);
  show("running", kExitDone, own_step);
}

void RunRecord::reached(std::int64_t step) {
  step_ = step;
  if (stepped_) return;
  stepped_ = true;
  warn_on_error([&] { event_log_->ready({step, process_age_s()}); });
}

bool RunRecord::may_write() {
  return run_.ranks.world.rank() == 0 && lock_ && lock_->is_held();
}

void RunRecord::show(const char* state, int code, std::int64_t committed) {
  job::write_status(run_.folder, state, code, step_, committed);
}

void RunRecord::committed(std::int64_t step) {
  if (!may_write()) return;
  event_log_->commit(step);
  job::write_status(run_.folder, "running", kExitDone, step, step);
}

void RunRecord::requested(const std::string& want, const std::string& by) {
  if (want == "stop") requested_by_ = by;
  warn_on_error([&] { event_log_->request({want, by, step_}); });
}

void RunRecord::end(const char* state, int code, const std::string& reason) {
  if (!may_write()) return;
  warn_on_error([&] { event_log_->end({state, code, step_, reason}); });
  job::write_status(run_.folder, state, code, step_, std::nullopt, reason);
}

void RunRecord::ended(bool done, const std::string& reason) {
  end(done ? "done" : "stopped", done ? kExitDone : kExitStopped, reason);
}

int RunRecord::stopped_before_first_step() {
  if (claimed_) {
    if (run_.ranks.world.rank() == 0 && !started_) start(run_.start.own ? step_ : -1, {});
    ended(/*done=*/false);
  }
  const std::string by = requested_by_.empty() ? "" : cat(" (", requested_by_, ")");
  log::info(
      run_.start.own && step_ > 0
          ? formatted("stopped on request{} at step {}: no new step; the same command resumes", by,
                      step_)
          : formatted("stopped on request{} before the first step: no checkpoint was saved; "
                      "the same command starts the run",
                      by));
  return kExitStopped;
}

void RunRecord::release_directory() {
  lock_.reset();
  if (had_run_) return;
  std::error_code code;  // remove() keeps directories that are not empty
  std::filesystem::remove(run_.folder.status(), code);
  std::filesystem::remove(run_.folder.checkpoints(), code);
  if (!had_root_) std::filesystem::remove(run_.folder.root, code);
}

void RunRecord::failed(const std::string& kind, int code, const std::string& message) {
  if (!claimed_) return;
  const int rank = run_.ranks.world.rank();
  if (!begun_ && code == exit_code(ErrorKind::usage)) {
    if (rank == 0) release_directory();
    return;
  }
  const job::FailureReport failure_report{
      rank, run_.ranks.launch.hostname, kind, code, step_, message, {}, {}, unix_time_s()};
  job::write_failure_report(run_.folder, failure_report);
  if (!may_write()) return;
  // If the disk is too full for this record, only warn, because the caller must report the first
  // error.
  warn_on_error([&] {
    if (!started_) start(run_.start.own ? step_ : -1, {});
    event_log_->failure_report(failure_report, event_log_->attempt());
    end("failed", code);
  });
}

}  // namespace trireme::train
