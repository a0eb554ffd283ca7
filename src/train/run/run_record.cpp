#include "train/run/run_record.hpp"

#include "checkpoint/format/folder.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/log.hpp"
#include "train/control/verdict.hpp"

namespace trireme {

RunRecord::RunRecord(const RunRequest& run)
    : run_(run), step_(run.start.kind == RunStart::Kind::go_on ? run.start.step() : 0) {}

void RunRecord::claim() {
  all_or_none(run_.ranks.world, [&] {
    if (run_.ranks.world.rank() == 0) take_folder();
  });
  claimed_ = true;
}

void RunRecord::take_folder() {
  const RunFolder& folder = run_.folder;
  std::error_code refused;  // a name that cannot be is told by prepare()
  had_root_ = std::filesystem::exists(folder.root, refused);
  had_run_ = had_root_ && folder.holds_run();
  folder.prepare();
  lock_.emplace(folder.root, RunLockOptions{.job_id = run_.ranks.job_id});
  // From here on a kill leaves a folder that the next start knows as its own.
  if (!std::filesystem::exists(folder.status())) running(step_, -1);
  remove_temporaries(folder.root);
  remove_temporaries(folder.checkpoints());
  if (run_.config.checkpoint.resume == "never" && !run_.start.begun_anew() &&
      !list_steps(folder.checkpoints()).empty()) {
    fail(
        ErrorKind::usage,
        "checkpoint.resume = never, but {} holds checkpoints; give a new --run, or let it resume (auto)",
        folder.checkpoints().string());
  }
}

void RunRecord::running(std::int64_t step, std::int64_t committed) const {
  if (run_.ranks.world.rank() == 0)
    write_status(run_.folder, "running", kExitDone, step, committed);
}

void RunRecord::ended(bool done) const {
  if (run_.ranks.world.rank() == 0)
    write_status(run_.folder, done ? "done" : "stopped", done ? kExitDone : kExitStopped, step_);
}

int RunRecord::stopped_before_first_step() const {
  if (claimed_) ended(/*done=*/false);
  log::info("stopped on request before the first step: nothing was begun; the same command starts");
  return kExitStopped;
}

void RunRecord::leave_folder() {
  lock_.reset();
  if (had_run_) return;
  std::error_code code;  // what is not empty stays
  std::filesystem::remove(run_.folder.status(), code);
  std::filesystem::remove(run_.folder.checkpoints(), code);
  if (!had_root_) std::filesystem::remove(run_.folder.root, code);
}

void RunRecord::begin(std::int64_t step) {
  begun_ = true;
  step_ = step;
  if (run_.ranks.world.rank() == 0) clear_verdicts(run_.folder);
}

void RunRecord::failed(const std::string& kind, int code, const std::string& message) {
  if (!claimed_) return;
  const int rank = run_.ranks.world.rank();
  if (!begun_ && code == exit_code(ErrorKind::usage)) {
    if (rank == 0) leave_folder();
    return;
  }
  write_verdict(run_.folder, {rank, run_.ranks.launch.hostname, kind, code, step_, message});
  if (rank != 0) return;
  // What went wrong first is the news, also where the disk takes no more of it.
  if (const auto error = capture([&] { write_status(run_.folder, "failed", code, step_); }))
    log::warn(error->what());
}

}  // namespace trireme
