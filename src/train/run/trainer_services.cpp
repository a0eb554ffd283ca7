#include "train/run/trainer_services.hpp"

#include <algorithm>

#include "comm/agree.hpp"
#include "core/files/file.hpp"
#include "core/log.hpp"
#include "core/timer.hpp"
#include "device/device.hpp"
#include "job/attempt.hpp"
#include "job/event_log.hpp"
#include "scheduler/scheduler.hpp"
#include "train/report/sinks.hpp"
#include "train/state/resume.hpp"

namespace trireme::train {
namespace {

/// Returns true if an earlier attempt with the same configuration ended in this directory before
/// its first checkpoint. Then the step hash log keeps the steps of that attempt and compares them
/// with the repeated steps.
bool is_repeated(const RunRequest& run) {
  const std::filesystem::path config = run.folder.config();
  return std::filesystem::exists(config) && read_file(config) == run.keys.to_toml();
}

/// Returns the FLOPs for each token, from which the MFU is computed.
double flops_of_token(const RunRequest& run) {
  const RunConfig& config = run.config;
  return config.model.flops_per_token(
      config.train.seq_len,
      model::trained_parts(config.lora, config.model, run.task.trains_reward_head()));
}

}  // namespace

TrainerServices::TrainerServices(const RunRequest& run, const RunData& data, const RunModel& model,
                                 const StartState& beginning, const ComputePeak& peak,
                                 RunMeasures& measures, RunRecord& record)
    : saver(run.folder.checkpoints(), run_identity(run.keys, data.stream().content_hash()),
            run.config.checkpoint, record.lock(), run.ranks.world),
      metrics(run.ranks.world, measures.all, {flops_of_token(run), peak.flops}, &files),
      vote(run.ranks.world),
      chain(run.folder.chain(), run.ranks.world.rank() == 0, &files),
      skipped(run.folder, run.ranks.world.rank(), run.config.train.max_skipped_steps),
      early_stop(run.config.train.patience),
      time_limit(job::job_end_from_environment(), static_cast<double>(model.state_bytes())),
      requests(run.folder, run.ranks.world.rank() == 0, time_limit,
               scheduler::job_end_from_scheduler),
      energy(run.ranks.world, measures.all, run.config.metrics.energy, run.ranks.launch.local_rank,
             {.gpu = device::gpu_identity(model.registry.device())}),
      cancel_vote(run.ranks.world, [this] { return requests.stop_requested(); }) {
  saver.reserve(model.state_bytes());
  saver.on_commit([this, &record](std::int64_t step) {
    if (const auto error = comm::capture([&] { record.committed(step); })) log::warn(error->what());
    MetricsLine line{MetricsLine::Kind::commit};
    metrics.write(line.add("committed_step", step).add("time", unix_time_s()));
  });
  if (is_sink_on(run.config.metrics, "ranks")) {
    std::vector<Measures::Id> ids{measures.data_wait_s, measures.compute_s, measures.other_s};
    if (model.host_waits_for_ranks())
      ids.insert(ids.end(), {measures.peer_wait_s, measures.comm_exposed_s});
    ids.insert(ids.end(), {measures.save_s, measures.validation_s, measures.mem_peak_bytes});
    metrics.report_ranks(std::max<std::int64_t>(run.config.train.log_every, 1), std::move(ids));
  }
  restore(run, beginning);
}

void TrainerServices::open_sinks(const RunRequest& run, const StartState& beginning) {
  if (run.ranks.world.rank() != 0) return;
  const job::EventLogContent event_log = job::read_event_log(run.folder.event_log());
  const std::int64_t attempt = event_log.attempts.empty() ? 1 : event_log.attempts.back().number;
  for (auto& sink : make_sinks(run.config.metrics, {.folder = run.folder,
                                                   .run_id = event_log.run_id(),
                                                   .task = std::string(run.name),
                                                   .config = config_texts(run.keys),
                                                   .num_ranks = run.ranks.world.size(),
                                                   .job = run.ranks.attempt_id.job,
                                                   .attempt = attempt - 1,
                                                   .first_step = beginning.progress.step,
                                                   .total_steps = run.config.train.steps,
                                                   .log_every = run.config.train.log_every}))
    metrics.add(std::move(sink));
  if (!beginning.has_training_state) return;
  MetricsLine line{MetricsLine::Kind::resumed};
  metrics.write(line.add("resumed_from", beginning.progress.step));
}

void TrainerServices::restore(const RunRequest& run, const StartState& beginning) {
  saver.trust_existing();
  const std::int64_t step = beginning.progress.step;
  const RunValues& saved = beginning.saved;
  if (run.ranks.world.rank() == 0 && run.start.kind != RunStart::Kind::resume_run &&
      !is_repeated(run))
    std::filesystem::remove(run.folder.chain());
  // Checkpoints of version 0.1 lack the step hash. For them, the log starts again at this step.
  chain.start(step, saved.chain.value_or(""));
  // A new run does not count the skipped steps of the run that its checkpoint comes from.
  if (run.start.kind == RunStart::Kind::resume_run && saved.skipped_in_a_row)
    skipped.restore(number_in(saved, &RunValues::skipped_in_a_row, 0, step));
  if (beginning.valid_data_is_same) early_stop.restore(saved);
  metrics.restore_windows(saved.loss_spikes.value_or(""), saved.grad_norm_spikes.value_or(""));
}

void TrainerServices::put_history(RunValues& values) const {
  values.chain = chain.value();
  values.skipped_in_a_row = skipped.in_a_row();
  early_stop.put_state(values);
  values.loss_spikes = metrics.loss_window();
  values.grad_norm_spikes = metrics.grad_norm_window();
}

}  // namespace trireme::train
