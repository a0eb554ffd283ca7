#include "train/run/training_run.hpp"

#include <cmath>
#include <set>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/model_values.hpp"
#include "comm/agree.hpp"
#include "comm/liveness/activity.hpp"
#include "core/error.hpp"
#include "core/files/refusal.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "core/process/failpoints.hpp"
#include "core/process/stop_signals.hpp"
#include "optim/schedule.hpp"
#include "parallel/device.hpp"
#include "parallel/torch_errors.hpp"
#include "train/control/verdict.hpp"
#include "train/health/divergence_advice.hpp"
#include "train/report/progress_line.hpp"
#include "train/run/evaluate.hpp"
#include "train/run/training_model.hpp"
#include "train/state/resume.hpp"

/// The part of a run from its first step to its last checkpoint.
namespace trireme {
namespace {

/// Adds the time that it lives to a measure.
class CountTime {
 public:
  CountTime(Measures& measures, Measures::Id id) : measures_(measures), id_(id) {}

  CountTime(const CountTime&) = delete;
  CountTime& operator=(const CountTime&) = delete;

  ~CountTime() { measures_.record(id_, timer_.seconds()); }

 private:
  Measures& measures_;
  Measures::Id id_;
  Timer timer_;
};

}  // namespace

bool TrainingRun::checkpoint_due() const {
  const std::int64_t every = config_.checkpoint.every;
  return progress_.step == config_.train.steps || (every > 0 && progress_.step % every == 0);
}

int TrainingRun::execute() {
  StopVote vote(world_);
  vote.post({.stop = requests_->asked()});
  if (vote.take().stop) throw StoppedEarly();
  stop_saves_first();
  begun_ = progress_;
  run_time_.restart();
  if (ranks_.options.activity) waited_reported_s_ = ranks_.options.activity->waited_s();
  stop_between_.emplace(world_, [this] { return requests_->asked(); });
  model_->step.stop_before(
      [this](std::int64_t i, std::int64_t n) { return stop_between_->before(i, n); });
  bool stopped = false;
  while (progress_.step < config_.train.steps && !stopped) {
    if (lock_) lock_->check();
    const StopRequests::Wish wish = requests_->poll();
    const std::int64_t step_before = progress_.step;
    vote.post({wish.stop, wish.save, saver_->writer_done(), trace_});
    const bool dropped = !do_step();
    const StopVote::Result result = vote.take();
    if (chain_->step() < step_before) chain_->append(step_before, result.trace);
    stopped = result.stop || dropped;
    if (progress_.step == config_.train.steps && progress_.update == 0 && skipped_->in_a_row() > 0)
      fail(
          ErrorKind::numeric,
          "no update was done: the loss or the gradient of every step was not finite (skipped/ in the run folder has the samples);");
    if (result.writers_done) {
      commit();
      requests_->limit().save_took(since_save_.seconds());
    }
    const bool validation_due =
        config_.train.eval_every > 0 && progress_.step % config_.train.eval_every == 0;
    // Before the save, which keeps its result.
    if (validation_due && !stopped) stopped = !validate();
    if (stopped) break;
    if (checkpoint_due() || result.save) {
      settle_chain(vote);
      save();
    }
    if (result.save) {
      commit();
      requests_->fulfilled(/*stopped=*/false);
    }
  }
  settle_chain(vote);
  const bool nothing_new = stopped && progress_.step == begun_.step;
  if (saved_step_ != progress_.step && !nothing_new) save();
  commit();
  show_last_metrics();
  requests_->fulfilled(/*stopped=*/true);  // also of a run that came to its end before it looked
  const bool done = progress_.step >= config_.train.steps;
  close(done);
  const int code = done ? kExitDone : kExitStopped;
  if (world_.rank() == 0) write_status(folder_, done ? "done" : "stopped", code, progress_.step);
  return code;
}

void TrainingRun::close(bool done) {
  const std::int64_t steps = progress_.step - begun_.step;
  const std::int64_t tokens = progress_.tokens - begun_.tokens;
  const double time_s = run_time_.seconds();
  const double tokens_per_s = static_cast<double>(tokens) / time_s;
  MetricsLine closing{MetricsLine::Kind::end, {}};
  closing.add("end_step", progress_.step)
      .add("time", unix_time_s())
      .add("done", done)
      .add("steps", steps)
      .add("tokens", tokens)
      .add("time_s", time_s)
      .add("tokens_per_s", tokens_per_s);
  metrics_->write(closing);
  if (world_.rank() != 0) return;
  const std::string how = done ? "done" : formatted("stopped on request ({})", requests_->reason());
  const std::string newest = list_steps(folder_.checkpoints()).empty()
                                 ? "no checkpoint yet"
                                 : formatted("newest checkpoint {}", step_folder_name(saved_step_));
  std::string what = "no new step";
  if (steps > 0) {
    what = formatted(
        "{}{}{} tokens in {}, {} tok/s by the clock", steps, steps == 1 ? " step, " : " steps, ",
        format_count(static_cast<double>(tokens)),
        time_s < 60 ? formatted("{} s", std::round(10 * time_s) / 10) : format_duration(time_s),
        format_count(tokens_per_s));
  }
  log::info(formatted("{} at step {}/{}: {}; {}, {}{}", how, progress_.step, config_.train.steps,
                      what, folder_.root.string(), newest,
                      done ? "" : "; the same command resumes"));
}

int TrainingRun::end_before_first_step() {
  if (requests_) requests_->fulfilled(/*stopped=*/true);
  if (world_.rank() == 0 && claimed_)
    write_status(folder_, "stopped", kExitStopped, progress_.step);
  log::info("stopped on request before the first step: nothing was begun; the same command starts");
  return kExitStopped;
}

void TrainingRun::enter(const char* phase) const {
  if (ranks_.options.activity) ranks_.options.activity->set_phase(phase);
}

void TrainingRun::settle_chain(StopVote& vote) {
  if (chain_->step() == progress_.step) return;
  vote.post({.trace = trace_});
  chain_->append(progress_.step, vote.take().trace);
}

bool TrainingRun::do_step() {
  const Timer timer;
  failpoint("train.step");
  const double waited_before_s = loader_->wait_s();
  const std::int64_t step = progress_.step + 1;
  if (ranks_.options.activity) ranks_.options.activity->set_step(step);
  enter("data");
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < loader_->micro_steps(); ++i) batches.push_back(loader_->next());
  measures_.all.record(measures_.data_wait_s, loader_->wait_s() - waited_before_s);
  check_targets(batches.front());
  enter("step");
  const double lr = learning_rate(config_.optim, step, config_.train.steps);

  const UpdateResult result =
      model_->step.run(batches, batches.front().update_targets, step, progress_.update + 1, lr);

  if (result.dropped) return false;
  skipped_->note(step, result, batches);
  trace_ = step_trace(world_.rank(), batches, result.loss_sum, result.grad_norm, lr,
                      weights_to_hash(step));
  const std::int64_t step_tokens = config_.train.global_batch * batches.front().T;
  progress_ = {step, progress_.update + (result.skipped ? 0 : 1), loader_->next_sample(),
               progress_.tokens + step_tokens};
  report(result, lr, step_tokens);
  requests_->limit().step_took(timer.seconds());
  failpoint("train.stepped");
  return true;
}

void TrainingRun::check_targets(const Batch& batch) {
  if (batch.update_targets > 0) return;
  const std::int64_t first = loader_->next_sample() - config_.train.global_batch;
  std::set<std::string> sets;
  for (std::int64_t i = first; i < loader_->next_sample(); ++i)
    sets.insert(data_->stream().place(i).samples->set().folder().string());
  std::string names;
  for (const std::string& name : sets) names += cat(names.empty() ? "" : ", ", name);
  all_or_none(world_, [&] {
    show_last_metrics();
    fail(
        ErrorKind::data,
        "step {}: its samples {} to {} have nothing to predict (every piece of a document is one token or masked), in {}. No weights and no checkpoint were changed: pack documents of two tokens or more, or put more samples into an update (train.global_batch)",
        progress_.step + 1, first, loader_->next_sample() - 1, names);
  });
}

std::span<const std::byte> TrainingRun::weights_to_hash(std::int64_t step) {
  const std::int64_t every = config_.train.hash_weights_every;
  if (every == 0 || step % every != 0) return {};
  weights_ = model_->registry.flat_main().to(at::kCPU);  // no copy where it is there already
  return {static_cast<const std::byte*>(weights_.const_data_ptr()), weights_.nbytes()};
}

void TrainingRun::report(const UpdateResult& result, double lr, std::int64_t step_tokens) {
  metrics_->loss(result.loss_sum, result.num_targets);
  ++steps_since_report_;
  if (progress_.step % config_.train.metrics_every != 0 && progress_.step != config_.train.steps)
    return;
  const double ended_s = run_time_.seconds();
  measures_.all.record(measures_.mem_peak_bytes,
                       static_cast<double>(peak_memory_bytes(model_->registry.device())));
  if (ranks_.options.activity) {
    const double waited_s = ranks_.options.activity->waited_s();
    measures_.all.record(measures_.peer_wait_s, waited_s - waited_reported_s_);
    waited_reported_s_ = waited_s;
  }
  const StepFacts facts{progress_.step,         progress_.tokens, step_tokens,
                        steps_since_report_,    result.grad_norm, lr,
                        model_->scaler.scale(), result.skipped};
  const auto line = metrics_->report(facts, ended_s);
  steps_since_report_ = 0;
  if (line) heed(*line);
}

bool TrainingRun::validate() {
  enter("validate");
  const CountTime counted(measures_.all, measures_.validation_s);
  const Timer timer;
  const auto validation =
      evaluate(model_->transformer, *model_->objective, data_->validation(),
               model_->mesh.group(Axis::data), config_.train.micro_batch,
               [this](std::int64_t i, std::int64_t n) { return stop_between_->before(i, n); });
  if (!validation) return false;
  MetricsLine line{MetricsLine::Kind::validation, {}};
  line.add("eval_step", progress_.step)
      .add("valid_loss", validation->loss)
      .add("valid_targets", static_cast<std::int64_t>(validation->num_targets));
  metrics_->write(line);
  valid_loss_ = {progress_.step, validation->loss};
  metrics_->pause();
  log::info(formatted("step {}  validation loss {}", progress_.step, validation->loss));
  requests_->limit().validation_took(timer.seconds());
  return true;
}

void TrainingRun::save() {
  enter("save");
  const CountTime counted(measures_.all, measures_.save_s);
  since_save_.restart();
  // Lines of the steps that the checkpoint holds must be on disk before it: a resumed run does not
  // write them again.
  show_last_metrics();
  saver_->wait_copied();
  model_->state.stage();
  StateDict state{model_->state.tensors(), {}, files_};
  put_progress(state.values, progress_, model_->scaler);
  put_config(state.values, keys_);
  put_model_values(config_.model, state.values);
  state.values.merge(data_->stream().state(progress_.next_sample));
  put_history(state.values);
  if (valid_loss_.first == progress_.step)
    state.values[kValidLossValue] = number_text(valid_loss_.second);
  saver_->save(progress_.step, state);
  saved_step_ = progress_.step;
  if (!saver_->in_flight()) requests_->limit().save_took(since_save_.seconds());
}

void TrainingRun::show_last_metrics() {
  if (const auto line = metrics_->flush()) heed(*line);
  metrics_->pause();
}

void TrainingRun::heed(const MetricsLine& line) {
  const double step_s =
      line.value("step_time_s") - line.value("save_s") - line.value("validation_s");
  stop_between_->piece_takes(step_s / static_cast<double>(loader_->micro_steps()));
}

void TrainingRun::commit() {
  const CountTime counted(measures_.all, measures_.save_s);
  saver_->commit();
}

void TrainingRun::record_failure(const std::string& kind, int code, const std::string& message) {
  if (!claimed_) return;
  write_verdict(folder_,
                {world_.rank(), ranks_.launch.hostname, kind, code, progress_.step, message});
  if (world_.rank() != 0) return;
  // What went wrong first is the news, also where the disk takes no more of it.
  if (const auto error = capture([&] { write_status(folder_, "failed", code, progress_.step); }))
    log::warn(error->what());
}

void TrainingRun::end_diverged(const Error& error) {
  const int code = exit_code(error.kind());
  if (const auto failed = capture([&] { show_last_metrics(); })) log::warn(failed->what());
  record_failure("error", code, error.what());
  if (world_.rank() != 0) throw PeerFailed(code);
  const std::string advice =
      divergence_advice(config_, folder_, ranks_.program, task_.name, world_.size());
  throw AgreedError(Error(error.kind(), formatted("{}\n{}", error.what(), advice)));
}

int run_task(const Task& task, RunConfig& config, ConfigSet& keys,
             const std::filesystem::path& folder, const RunRanks& ranks, RunStart start) {
  TrainingRun run(task, config, keys, folder, ranks, std::move(start));
  int code = kExitDone;
  try {
    code = with_torch_errors([&] {
      run.prepare();
      return run.execute();
    });
  } catch (const StoppedEarly&) {
    code = run.end_before_first_step();
  } catch (const PeerFailed& peer) {
    run.record_failure("peer", peer.code(), peer.what());
    throw;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::numeric) run.end_diverged(error);
    run.record_failure("error", exit_code(error.kind()), error.what());
    throw;
  } catch (const std::exception&) {
    const Error error = current_error();
    run.record_failure("error", exit_code(error.kind()), error.what());
    throw;
  }
  ranks.world.barrier();
  return code;
}

}  // namespace trireme
