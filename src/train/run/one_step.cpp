#include <ATen/Parallel.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"
#include "core/log.hpp"
#include "core/named_range.hpp"
#include "core/process/failpoints.hpp"
#include "device/device.hpp"
#include "optim/schedule.hpp"
#include "train/audit/layout_record.hpp"
#include "train/planner/scaling.hpp"
#include "train/run/training_run.hpp"
#include "train/step/microbatches.hpp"

/// One step of a run: data, update, trace, report.
namespace trireme::train {
namespace {

void warn_of_slow_rank(TrainingRun& run, const MetricsLine& line, double step_s) {
  const auto slow_rank = run.slow_ranks.add(
      {static_cast<std::int64_t>(line.value("step")), run.config().train.metrics_every,
       static_cast<std::int64_t>(line.value("slowest_rank")), line.text("slowest_host"),
       line.text("slowest_phase"), line.value("slowest_excess_s"), step_s});
  if (!slow_rank || run.world().rank() != 0) return;
  run.services.metrics.pause();
  log::warn(*slow_rank);
}

/// Passes a line of metrics to the services that use it. The line is the same on all ranks.
void handle_metrics(TrainingRun& run, const MetricsLine& line) {
  const double step_s =
      line.value("step_time_s") - line.value("save_s") - line.value("validation_s");
  run.services.cancel_vote.set_item_time(step_s / static_cast<double>(run.micro_steps()));
  StepSeconds shares{.step = line.value("step_time_s"),
                     .data_wait = line.value("data_wait_s"),
                     .save = line.value("save_s"),
                     .validation = line.value("validation_s")};
  if (run.model.host_waits_for_ranks()) {
    shares.comm_exposed = line.value("comm_exposed_s");
    shares.peer_wait = line.value("peer_wait_s");
    warn_of_slow_rank(run, line, step_s);
  }
  run.shares.add(shares, run.config().train.metrics_every);
  if (!run.shares.is_data_newly_slow() || run.world().rank() != 0) return;
  const TrainConfig& train = run.config().train;
  run.services.metrics.pause();
  log::warn(data_advice(run.shares, static_cast<double>(train.global_batch * train.seq_len),
                        at::get_num_threads(), run.config().data.path));
}

/// Throws Error(data) on all ranks if the update has no target, because its mean loss is undefined.
void check_targets(TrainingRun& run, std::int64_t step, const UpdateSamples& samples) {
  const data::Batch& batch = samples.batches.front();
  if (batch.update_targets > 0) return;
  const std::int64_t end = samples.next_sample;
  const std::int64_t first = end - batch.update_samples;
  comm::all_or_none(run.world(), [&] {
    show_last_metrics(run);
    fail(
        ErrorKind::data,
        "step {}: its samples {} to {} have no training targets (every part of a document is one token or masked), in {}. No weights and no checkpoint were changed: pack documents of two tokens or more, or put more samples into an update (train.global_batch)",
        step, first, end - 1, run.model.samples->origin(first, end));
  });
}

UpdateSamples next_samples(TrainingRun& run, std::int64_t step) {
  run.enter(run.model.samples->phase());
  const NamedRange range(Phase::data_wait, "wait for data");
  UpdateSamples samples = run.model.samples->next();
  if (samples.cancelled) return samples;
  check_targets(run, step, samples);
  return samples;
}

/// Returns the total time this rank has waited in collectives, in seconds.
double waited_s(const TrainingRun& run) {
  return run.activity() != nullptr ? run.activity()->waited_s() : 0;
}

/// Hashes the trainable master weights that this rank owns.
std::uint64_t weights_hash(const parallel::ParamRegistry& registry) {
  const parallel::UnitLayout& layout = registry.layout();
  std::vector<std::uint64_t> hashes;
  for (const std::size_t unit : layout.trainable_units()) {
    const parallel::IndexRange share = layout.share_of_part(unit);
    const at::Tensor weights =  // no copy if they are in host memory
        registry.master_part(unit).narrow(0, share.begin, share.count()).to(at::kCPU);
    hashes.push_back(
        xxh3_64({static_cast<const std::byte*>(weights.const_data_ptr()), weights.nbytes()}));
  }
  return xxh3_64(std::as_bytes(std::span(hashes)));
}

/// Returns this rank's step trace for the step hash log. It includes a weights hash every N steps.
std::uint64_t trace_of(const TrainingRun& run, std::int64_t step,
                       const std::vector<data::Batch>& batches, const UpdateResult& result,
                       double lr) {
  const std::int64_t every = run.config().train.hash_weights_every;
  const bool hashed = every > 0 && step % every == 0;
  return step_trace(run.world().rank(), batches, result.loss_sum, result.grad_norm, lr,
                    hashed ? weights_hash(run.model.registry) : 0);
}

/// Returns true if rows have different lengths: those of preference pairs and generated answers.
bool rows_vary(const TrainingRun& run) {
  return run.model.objective->term() != objective::LossTerm::target ||
         run.request.task.rows_per_sample() > 1;
}

/// Returns the number of positions that all ranks trained on in this step. If rows vary in length,
/// the ranks sum their counts (collective). Ranks of one tp, cp or pp group have the same rows, so
/// only one of them counts.
std::int64_t tokens_of_step(const TrainingRun& run, const std::vector<data::Batch>& batches) {
  if (!rows_vary(run)) return batches.front().update_samples * batches.front().T;
  const parallel::Mesh& mesh = run.model.mesh;
  std::int64_t mine = 0;
  for (const data::Batch& batch : batches) {
    mine += std::count_if(batch.sequence_of.begin(), batch.sequence_of.end(),
                          [](std::int32_t sequence) { return sequence >= 0; });
    if (run.request.task.rows_per_sample() > 1)
      mine = std::accumulate(batch.row_lengths.begin(), batch.row_lengths.end(), mine);
  }
  for (const parallel::Axis axis : {parallel::Axis::tp, parallel::Axis::cp, parallel::Axis::pp})
    if (mesh.rank(axis) != 0) mine = 0;
  return comm::all_reduce_value(run.world(), mine, comm::ReduceOp::sum, "tokens");
}

/// Returns true if RUN/layout.json is complete: it holds the first update of this process and, if
/// schedule auto found a schedule, the first update that ran it.
bool is_recorded(const TrainingRun& run) {
  return run.layout_recorded && (run.schedule_recorded || !run.model.step.schedules().found());
}

/// Returns the MFU that `trireme plan` predicts without calibration; null if the data sheet of the
/// device is not known, the number of tokens varies, or the planner does not know the layout.
Json predicted_mfu(const TrainingRun& run, const UpdateFacts& facts) {
  const at::Device device = run.model.registry.device();
  const planner::DeviceKind* kind =
      device.is_cuda() ? planner::kind_of_device(device::device_name(device)) : nullptr;
  if (kind == nullptr || facts.tokens_vary) return nullptr;
  const int ranks = run.world().size();
  const TrainConfig& train = run.config().train;
  double mfu = 0;
  const auto error = comm::capture([&] {
    mfu = planner::predicted_mfu(
        facts, planner::scaled_cluster(*kind, ranks, run.request.ranks.launch.local_size),
        static_cast<double>(train.global_batch * train.seq_len));
  });
  return error ? Json(nullptr) : Json(mfu);
}

void record_layout(TrainingRun& run, const UpdateCount& count,
                   const std::vector<data::Batch>& batches) {
  const RunConfig& config = run.config();
  UpdateFacts facts = update_facts(
      config.model, config.optim, run.model.registry.dtypes(), run.model.mesh,
      {batches.front().B, batches.front().T, static_cast<std::int64_t>(batches.size()),
       run.last_step(), ops::path_of(config.train.fused_ops && config.train.plain_ops.empty()),
       config.train.fp8_mode()},
      config.lora);
  facts.weight_average = config.train.ema_decay > 0;
  facts.reward_head = run.request.task.trains_reward_head();
  facts.tokens_vary = rows_vary(run) || run.model.frozen != nullptr;
  run.schedule_recorded = run.model.step.schedules().ran_found();
  if (run.schedule_recorded) facts.found_schedule = run.model.step.schedules().found();
  Json record = layout_record(run.world(), run.model.mesh, facts, count);
  if (run.world().rank() == 0) record["mfu_predicted"] = predicted_mfu(run, facts);
  comm::all_or_none(run.world(), [&] {
    if (run.world().rank() == 0)
      write_file_atomic(run.request.folder.layout(), record.dump(2) + "\n");
  });
  run.layout_recorded = true;
}

void report(TrainingRun& run, const UpdateResult& result, double lr, std::int64_t step_tokens) {
  Metrics& metrics = run.services.metrics;
  RunMeasures& measures = run.measures;
  const TrainConfig& train = run.config().train;
  // The ranks of a tp or pp group have the same loss, so one of them reports the loss. The ranks of
  // a cp group have the same rows, so one of them reports the counts.
  const bool reports_loss =
      run.model.mesh.rank(parallel::Axis::tp) == 0 && run.model.mesh.rank(parallel::Axis::pp) == 0;
  const bool tells_targets = reports_loss && run.model.mesh.rank(parallel::Axis::cp) == 0;
  metrics.loss(reports_loss ? result.loss_sum : 0, tells_targets ? result.num_terms : 0,
               tells_targets ? result.num_targets : 0);
  ++run.steps_since_report;
  if (run.progress.step % train.metrics_every != 0 && run.progress.step != train.steps) return;
  const double ended_s = run.run_time.seconds();
  measures.all.record(measures.mem_peak_bytes,
                      static_cast<double>(device::peak_memory_bytes(run.model.registry.device())));
  const double waited_now_s = waited_s(run);
  const double peer_wait_s = waited_now_s - run.waited_reported_s;
  if (run.model.host_waits_for_ranks()) measures.all.record(measures.peer_wait_s, peer_wait_s);
  measures.all.record(measures.other_s,
                      std::max(0.0, ended_s - run.ended_reported_s - run.phases_s - peer_wait_s));
  run.services.energy.record(static_cast<double>(run.steps_since_report));
  run.waited_reported_s = waited_now_s;
  run.ended_reported_s = ended_s;
  run.phases_s = 0;
  const StepFacts facts{run.progress.step,        run.progress.tokens, step_tokens,
                        run.steps_since_report,   result.grad_norm,    lr,
                        run.model.scaler.scale(), result.skipped};
  const auto line = metrics.report(facts, ended_s);
  run.steps_since_report = 0;
  if (line) handle_metrics(run, *line);
}

}  // namespace

void post_vote(TrainingRun& run, const StepVote::Vote& vote) {
  const Metrics::Numbers numbers = run.services.metrics.begin_reduction();
  run.services.vote.post(vote, {numbers.sums, numbers.maxima});
}

StepVote::Result take_vote(TrainingRun& run) {
  const StepVote::Result result = run.services.vote.take();
  if (const auto line = run.services.metrics.reduced()) handle_metrics(run, *line);
  return result;
}

void show_last_metrics(TrainingRun& run) {
  if (run.services.vote.is_posted()) (void)take_vote(run);  // an error has ended the step
  finish_step(run);
  if (const auto line = run.services.metrics.flush()) handle_metrics(run, *line);
  run.services.metrics.pause();
}

void finish_step(TrainingRun& run) {
  if (!run.started) return;
  const StartedStep started = *std::exchange(run.started, std::nullopt);
  const UpdateResult result = started.result ? *started.result : run.model.step.finish();
  RunMeasures& measures = run.measures;
  measures.all.record(measures.data_wait_s, started.data_wait_s);
  if (run.model.host_waits_for_ranks()) {
    measures.all.record(measures.comm_s, started.exposed_s + result.overlap.hidden_s());
    measures.all.record(measures.comm_exposed_s, started.exposed_s);
  }
  const double compute_s = std::max(0.0, started.update_s - started.exposed_s);
  measures.all.record(measures.compute_s, compute_s);
  run.phases_s += started.data_wait_s + compute_s;
  Progress& progress = run.progress;
  const std::vector<data::Batch>& batches = started.batches;
  run.model.samples->updated(started.update_s, result.skipped ? 0 : progress.update + 1);
  run.services.skipped.note(started.step, result, batches);
  run.trace = trace_of(run, started.step, batches, result, started.lr);
  const std::int64_t step_tokens = tokens_of_step(run, batches);
  progress = {started.step, progress.update + (result.skipped ? 0 : 1), started.next_sample,
              progress.tokens + step_tokens};
  run.record.reached(started.step);
  report(run, result, started.lr, step_tokens);
}

bool reads_results_late(const TrainingRun& run) {
  const std::string& wanted = run.config().train.late_results;
  const bool is_cpu = run.model.registry.device().is_cpu();
  if (wanted == "false" || (wanted == "auto" && is_cpu)) return false;
  std::string reason = run.model.step.reason_to_finish();
  if (reason.empty() && wanted == "auto" && !run.model.step.starts_ahead())
    reason = "the host needs the gradient norm for this optimizer or layout";
  if (!reason.empty() && run.world().rank() == 0)
    log::info(cat("the host waits for the results of every step: ", reason));
  return reason.empty();
}

bool do_step(TrainingRun& run) {
  const Timer timer;
  failpoint("train.step");
  const RunConfig& config = run.config();
  const std::int64_t step = run.last_step() + 1;
  if (run.activity() != nullptr) run.activity()->set_step(step);
  UpdateSamples samples = next_samples(run, step);
  if (samples.cancelled) return false;
  run.enter("step");
  const double lr = optim::learning_rate(config.optim, step, config.train.steps);

  std::optional<UpdateCount> count;
  // The count and Kineto use the same slot of LibTorch's thread-local debug information.
  if (!is_recorded(run) && !run.profile.is_active()) count.emplace(run.model.step);
  if (step < config.train.steps) run.model.samples->prepare_next();
  const double waited_before_s = waited_s(run);
  const Timer update_time;
  run.model.transformer.limit_windows(run.windows.window(step));
  const auto number_of_update = [&run] {
    finish_step(run);  // a skipped update does not count
    return run.progress.update + 1;
  };
  if (!run.model.step.start(samples.batches,
                            update_terms(samples.batches.front(), run.model.objective->term()),
                            step, number_of_update, lr))
    return false;
  std::optional<UpdateResult> result;
  if (!run.late_results || count) result = run.model.step.finish();
  run.started = StartedStep{step,
                            samples.next_sample,
                            std::move(samples.batches),
                            lr,
                            samples.waited_s,
                            update_time.seconds(),
                            waited_s(run) - waited_before_s,
                            result};
  if (count && !result->skipped) {
    count->end(*result);  // before the critic, which is not part of the count
    record_layout(run, *count, run.started->batches);
  }
  if (!run.late_results) finish_step(run);
  run.services.time_limit.step_took(timer.seconds());
  run.profile.step_ended(step);
  failpoint("train.stepped");
  return true;
}

}  // namespace trireme::train
