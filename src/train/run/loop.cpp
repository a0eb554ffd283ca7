#include "comm/agree.hpp"
#include "comm/liveness/activity.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/process/stop_signals.hpp"
#include "train/run/training_run.hpp"

/// The loop of a run: steps, votes, validation and saves, from its first step to its last.
namespace trireme {
namespace {

bool is_due(std::int64_t step, std::int64_t every) {
  return every > 0 && step % every == 0;
}

/// What the parts of a step ask while they are at work.
void connect(TrainingRun& run) {
  run.model.step.stop_before(
      [&run](std::int64_t i, std::int64_t n) { return run.keepers.stop_between.before(i, n); });
  run.model.step.before_update([&run] {
    if (!run.keepers.saver.in_flight()) return;
    const CountTime counted(run.measures.all, run.measures.save_s);
    run.keepers.saver.wait_copied();
  });
}

/// The last step's trace enters the chain, which a checkpoint of it holds.
void settle_chain(TrainingRun& run, StopVote& vote) {
  if (run.keepers.chain.step() == run.progress.step) return;
  vote.post({.trace = run.trace});
  run.keepers.chain.append(run.progress.step, vote.take().trace);
}

/// A validation is due where the run stands: also after a stop that came before it or cut it off.
bool owes_validation(const TrainingRun& run) {
  return run.progress.step > 0 && is_due(run.progress.step, run.config().train.eval_every) &&
         run.valid_loss.step != run.progress.step;
}

void check_learned(const TrainingRun& run) {
  if (run.progress.step < run.config().train.steps || run.progress.update > 0 ||
      run.keepers.skipped.in_a_row() == 0)
    return;
  fail(
      ErrorKind::numeric,
      "no update was done: the loss or the gradient of every step was not finite (skipped/ in the run folder has the samples).");
}

/// To the last step, or to a stop: then true.
bool take_steps(TrainingRun& run, StopVote& vote) {
  const RunConfig& config = run.config();
  Keepers& keepers = run.keepers;
  if (run.beginning.goes_on && owes_validation(run) && !validate(run)) return true;
  while (run.progress.step < config.train.steps) {
    if (run.record.lock() != nullptr) run.record.lock()->check();
    const StopRequests::Wish wish = keepers.requests.poll();
    const std::int64_t step_before = run.progress.step;
    vote.post({wish.stop, wish.save, keepers.saver.writer_done(), run.trace});
    const bool dropped = !do_step(run);
    const StopVote::Result result = vote.take();
    if (keepers.chain.step() < step_before) keepers.chain.append(step_before, result.trace);
    check_learned(run);
    if (result.writers_done) {
      commit(run);
      keepers.requests.limit().save_took(run.since_save.seconds());
    }
    if (result.save) run.record.requested("save", "SAVE");
    if (result.stop || dropped) return true;
    // Before the save, which keeps its result.
    if (owes_validation(run) && !validate(run)) return true;
    const bool is_last = run.progress.step == config.train.steps;
    if (is_last || is_due(run.progress.step, config.checkpoint.every) || result.save) {
      settle_chain(run, vote);
      save(run);
    }
    if (result.save) {
      commit(run);
      keepers.requests.fulfilled(/*stopped=*/false);
    }
  }
  return false;
}

int train(TrainingRun& run) {
  Keepers& keepers = run.keepers;
  StopVote vote(run.world());
  const bool has_work = run.progress.step < run.config().train.steps || owes_validation(run);
  vote.post({.stop = has_work && keepers.requests.asked()});
  if (vote.take().stop) {
    keepers.requests.fulfilled(/*stopped=*/true);
    run.record.requested("stop", keepers.requests.asked_by());
    throw StoppedEarly();
  }
  stop_saves_first();
  run.run_time.restart();
  if (run.activity() != nullptr) run.waited_reported_s = run.activity()->waited_s();
  const bool stopped = take_steps(run, vote);
  const std::string asked_by = keepers.requests.asked_by();
  if (stopped) run.record.requested("stop", asked_by);
  settle_chain(run, vote);
  const bool nothing_new = stopped && run.progress.step == run.beginning.progress.step;
  if (run.saved_step != run.progress.step && !nothing_new) save(run);
  commit(run);
  show_last_metrics(run);
  // Also of a run that came to its end before it looked.
  keepers.requests.fulfilled(/*stopped=*/true);
  const bool done = run.progress.step >= run.config().train.steps && !owes_validation(run);
  if (!done && keepers.requests.asked_by() != asked_by)  // STOP came during the save
    run.record.requested("stop", keepers.requests.asked_by());
  close(run, done);
  run.record.ended(done);
  return done ? kExitDone : kExitStopped;
}

}  // namespace

int train_loop(TrainingRun& run) {
  connect(run);
  try {
    return train(run);
  } catch (const Error& error) {
    // All ranks diverge at the same step: what is known of the steps before is shown.
    if (error.kind() == ErrorKind::numeric) {
      if (const auto failed = capture([&] { show_last_metrics(run); })) log::warn(failed->what());
    }
    throw;
  }
}

}  // namespace trireme
