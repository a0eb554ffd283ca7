#include <cmath>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/model_values.hpp"
#include "comm/agree.hpp"
#include "comm/launchers.hpp"
#include "core/background_log.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/named_range.hpp"
#include "core/process/stop_signals.hpp"
#include "pipeline/schedule_file.hpp"
#include "train/report/progress_line.hpp"
#include "train/run/training_run.hpp"
#include "train/state/resume.hpp"

/// The loop of a run: steps, votes, validation, checkpoints and the summary at its end.
namespace trireme::train {
namespace {

bool is_due(std::int64_t step, std::int64_t every) {
  return every > 0 && step % every == 0;
}

/// Attaches the functions that an update calls.
void attach_hooks(TrainingRun& run) {
  run.late_results = reads_results_late(run);
  const bool has_stages = run.model.mesh.size(parallel::Axis::pp) > 1;
  run.model.step.cancel_before([&run, has_stages](std::int64_t i, std::int64_t n) {
    CancelVote& vote = run.services.cancel_vote;
    return has_stages ? vote.before_all(n) : vote.before(i, n);
  });
  run.model.samples->cancel_when([&run] { return run.services.requests.stop_requested(); });
  run.model.step.before_update([&run] {
    if (!run.services.saver.in_flight()) return;
    const NamedRange range(Phase::checkpoint, "wait for the copy of the checkpoint");
    const MeasureTime counted(run.measures.all, run.measures.save_s);
    run.services.saver.wait_copied();
  });
}

/// Returns the values that a checkpoint of the current step holds.
RunValues values_now(const TrainingRun& run) {
  const RunConfig& config = run.config();
  RunValues values = run.beginning.carried;
  values.task = run.request.name;
  put_progress(values, run.progress, run.model.scaler);
  run.model.samples->put_state(run.progress.next_sample, values);
  if (const auto& found = run.model.step.schedules().found()) values.schedule = text_of(*found);
  values.fp8_history = run.model.transformer.fp8().history();
  run.services.put_history(values);
  if (run.valid_loss.step == run.progress.step) values.valid_loss = run.valid_loss.loss;
  values.config = config_texts(run.request.keys);
  values.fingerprint = run.beginning.fingerprint;
  checkpoint::put_model_values(config.model, values.model);
  if (config.lora.on()) checkpoint::put_lora_values(config.lora, values.model);
  if (!run.data.chat_template().empty())
    values.model[checkpoint::kChatTemplateValue] = run.data.chat_template();
  return values;
}

/// Saves a checkpoint of the current step. The step hash log must already hold this step.
void save(TrainingRun& run) {
  run.enter("save");
  const NamedRange range(Phase::checkpoint, "save checkpoint");
  const MeasureTime counted(run.measures.all, run.measures.save_s);
  run.since_save.restart();
  // Metrics lines must be on disk before the checkpoint of their steps, because a resumed run does
  // not write these lines again.
  show_last_metrics(run);
  run.services.files.drain();
  CheckpointSaver& saver = run.services.saver;
  saver.wait_copied();
  run.model.step.average_replicas();
  run.model.stage();
  checkpoint::StateDict state{run.model.saved_tensors(), values_now(run).to_values(),
                              run.data.tokenizer_files()};
  for (const auto& [name, content] : run.beginning.files) state.files[name] = content;
  state.files["config.toml"] = run.request.keys.to_toml();
  saver.save(run.progress.step, state);
  run.saved_step = run.progress.step;
  if (!saver.in_flight()) run.services.time_limit.save_took(run.since_save.seconds());
}

void commit(TrainingRun& run) {
  run.enter("save");
  const NamedRange range(Phase::checkpoint, "commit checkpoint");
  const MeasureTime counted(run.measures.all, run.measures.save_s);
  run.services.saver.commit();
}

/// Appends the last step to the step hash log, before a checkpoint of this step.
void complete_chain(TrainingRun& run) {
  if (run.services.chain.step() == run.progress.step) return;
  post_vote(run, {.trace = run.trace});
  run.services.chain.append(run.progress.step, take_vote(run).trace);
}

/// Reads the results of all steps. The weights are then those of step run.progress.step.
void finish_steps(TrainingRun& run) {
  if (!run.started) return;
  complete_chain(run);
  finish_step(run);
}

/// Returns true if a step ends the run, or a validation or a checkpoint follows it.
bool is_result_needed(const RunConfig& config, std::int64_t step) {
  return step == config.train.steps || is_due(step, config.train.eval_every) ||
         is_due(step, config.checkpoint.every);
}

/// Returns true if a validation is due at the current step, including one that a stop cancelled.
bool is_validation_due(const TrainingRun& run) {
  return run.progress.step > 0 && is_due(run.progress.step, run.config().train.eval_every) &&
         run.valid_loss.step != run.progress.step;
}

void check_any_update_applied(const TrainingRun& run) {
  if (run.progress.step < run.config().train.steps || run.progress.update > 0 ||
      run.services.skipped.in_a_row() == 0)
    return;
  fail(
      ErrorKind::numeric,
      "no update was done: the loss or the gradient of every step was not finite (skipped/ in the run directory has the samples).");
}

/// Requests the profile that the file PROFILE describes. A wrong request is a warning, because it
/// must not end the run. Collective.
void request_live_profile(TrainingRun& run) {
  const bool is_first = run.world().rank() == 0;
  const std::string text = comm::broadcast_text(
      run.world(), is_first ? run.services.requests.take_profile_request().value_or("-") : "");
  const auto error = comm::capture([&] {
    ProfileRequest request = live_profile(text, run.progress.step);
    check_profile_ranks(request, run.world().size());
    if (request.last_step > run.config().train.steps)
      fail(ErrorKind::usage, "the run ends at step {}", run.config().train.steps);
    if (!run.profile.request(request, run.progress.step))
      fail(ErrorKind::usage, "another profile is not complete yet");
    if (is_first)
      log::info(formatted("profile of steps {} to {} was requested", request.first_step,
                          request.last_step));
  });
  if (error && is_first) log::warn(formatted("PROFILE is ignored: {}", error->what()));
}

/// Runs the steps of the run. Returns true if a stop ended them.
bool take_steps(TrainingRun& run) {
  const RunConfig& config = run.config();
  TrainerServices& services = run.services;
  if (run.beginning.has_training_state && is_validation_due(run) && !validate(run)) return true;
  while (run.last_step() < config.train.steps && !services.early_stop.is_due()) {
    if (run.record.lock() != nullptr) run.record.lock()->check();
    const StopRequests::Request request = services.requests.poll();
    const std::int64_t step_before = run.progress.step;
    post_vote(run, {request.stop, request.save, request.profile, services.saver.writer_done(),
                    run.trace});
    const bool cancelled = !do_step(run);
    const StepVote::Result result = take_vote(run);
    if (services.chain.step() < step_before) services.chain.append(step_before, result.trace);
    if (cancelled || result.stop || result.save || result.profile ||
        is_result_needed(config, run.last_step()))
      finish_steps(run);
    check_any_update_applied(run);
    if (result.writers_done) {
      commit(run);
      services.time_limit.save_took(run.since_save.seconds());
    }
    if (result.save) run.record.requested("save", "SAVE");
    if (result.profile) request_live_profile(run);
    if (result.stop || cancelled) return true;
    if (run.started) continue;  // the weights are already those of this step
    // Validate before the save, because the checkpoint holds the validation loss.
    if (is_validation_due(run) && !validate(run)) return true;
    const bool is_last = run.progress.step == config.train.steps || services.early_stop.is_due();
    if (is_last || is_due(run.progress.step, config.checkpoint.every) || result.save) {
      complete_chain(run);
      save(run);
    }
    if (result.save) {
      commit(run);
      services.requests.fulfilled(/*stopped=*/false);
    }
  }
  return false;
}

/// Reports the result of the run to the sinks and to the log.
void log_summary(const TrainingRun& run, bool done) {
  const std::int64_t steps = run.progress.step - run.beginning.progress.step;
  const std::int64_t tokens = run.progress.tokens - run.beginning.progress.tokens;
  const double time_s = run.run_time.seconds();
  const double tokens_per_s = static_cast<double>(tokens) / time_s;
  MetricsLine closing{MetricsLine::Kind::end, {}};
  closing.add("end_step", run.progress.step)
      .add("time", unix_time_s())
      .add("done", done)
      .add("steps", steps)
      .add("tokens", tokens)
      .add("time_s", time_s)
      .add("tokens_per_s", tokens_per_s);
  const CapturedPasses* const graphs = run.model.step.captured_passes();
  if (graphs != nullptr) closing.add("graph_launches", graphs->num_launches());
  run.services.metrics.write(closing);
  if (run.world().rank() != 0) return;
  const job::RunDirectory& folder = run.request.folder;
  const EarlyStop& early_stop = run.services.early_stop;
  const std::string how =
      done ? "done" : formatted("stopped on request ({})", run.services.requests.reason());
  const std::string newest =
      checkpoint::list_steps(folder.checkpoints()).empty()
          ? "no checkpoint yet"
          : formatted("newest checkpoint {}", checkpoint::step_directory_name(run.saved_step));
  std::string what = "no new step";
  if (steps > 0) {
    what = formatted(
        "{}{}{} tokens in {}, {} tok/s by the clock", steps, steps == 1 ? " step, " : " steps, ",
        format_count(static_cast<double>(tokens)),
        time_s < 60 ? formatted("{} s", std::round(10 * time_s) / 10) : format_duration(time_s),
        format_count(tokens_per_s));
  }
  if (const std::int64_t skipped = run.services.skipped.in_a_row(); skipped > 0)
    log::warn(formatted(
        "the last {} steps changed nothing: loss or gradient was not finite (skipped/ in the run directory has the samples)",
        skipped));
  if (graphs != nullptr)
    log::info(formatted("number of micro-batches of rank 0 that were launched as a CUDA graph: {}",
                        graphs->num_launches()));
  if (const std::string shares = run.shares.text(); !shares.empty())
    log::info(formatted("shares of the step times, without the first step and the last save: {}",
                        shares));
  log::info(formatted("{} at step {}/{}{}: {}; {}, {}{}", how, run.progress.step,
                      run.config().train.steps,
                      done && early_stop.is_due() ? cat(", ", early_stop.reason()) : "", what,
                      folder.root.string(), newest,
                      done ? ""
                           : cat("; the same command resumes; ",
                                 comm::stopped_code_text(comm::launcher_variables()))));
}

int train(TrainingRun& run) {
  TrainerServices& services = run.services;
  const bool has_work = is_validation_due(run) || (run.progress.step < run.config().train.steps &&
                                                   !services.early_stop.is_due());
  post_vote(run, {.stop = has_work && services.requests.stop_requested()});
  if (take_vote(run).stop) {
    services.requests.fulfilled(/*stopped=*/true);
    run.record.requested("stop", services.requests.requested_by());
    throw StoppedEarly();
  }
  stop_saves_first();
  run.run_time.restart();
  if (run.activity() != nullptr) run.waited_reported_s = run.activity()->waited_s();
  run.profile.step_ended(run.progress.step);
  const bool stopped = take_steps(run);
  run.profile.finish();
  const std::string asked_by = services.requests.requested_by();
  if (stopped) run.record.requested("stop", asked_by);
  complete_chain(run);
  const bool has_no_new_step = stopped && run.progress.step == run.beginning.progress.step;
  if (run.saved_step != run.progress.step && !has_no_new_step) save(run);
  commit(run);
  show_last_metrics(run);
  // Remove the request files even if the run ended before it read them.
  services.requests.fulfilled(/*stopped=*/true);
  const bool early = services.early_stop.is_due();
  const bool done =
      (early || run.progress.step >= run.config().train.steps) && !is_validation_due(run);
  if (!done && services.requests.requested_by() != asked_by)  // STOP came during the save
    run.record.requested("stop", services.requests.requested_by());
  log_summary(run, done);
  services.files.drain();
  run.record.ended(done, done && early ? services.early_stop.reason() : "");
  return done ? kExitDone : kExitStopped;
}

}  // namespace

int train_loop(TrainingRun& run) {
  attach_hooks(run);
  const log::Background background;
  try {
    return train(run);
  } catch (const comm::AgreedError&) {
    throw;  // only this rank throws it, so it must not begin a collective
  } catch (const Error& error) {
    // A numeric error occurs on all ranks at the same step, so all ranks can take part in flushing
    // the metrics of earlier steps.
    if (error.kind() == ErrorKind::numeric) {
      if (const auto failed = comm::capture([&] { show_last_metrics(run); }))
        log::warn(failed->what());
    }
    throw;
  }
}

}  // namespace trireme::train
