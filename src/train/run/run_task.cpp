#include "train/run/run_task.hpp"

#include <ATen/Parallel.h>

#include "comm/agree.hpp"
#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/refusal.hpp"
#include "core/hash/xxh3.hpp"
#include "core/log.hpp"
#include "core/process/stop_signals.hpp"
#include "parallel/device.hpp"
#include "parallel/torch_errors.hpp"
#include "train/health/divergence_advice.hpp"
#include "train/health/memory_advice.hpp"
#include "train/report/device_use.hpp"
#include "train/report/progress_line.hpp"
#include "train/run/preflight.hpp"
#include "train/run/resolve_config.hpp"
#include "train/run/training_run.hpp"

namespace trireme {
namespace {

void announce(const TrainingRun& run, const std::string& batch_note) {
  const RunConfig& config = run.config();
  const TrainConfig& train = config.train;
  const RunRequest& request = run.request;
  run.record.begin(run.progress.step, run.beginning.own_step,
                   {{"binary", run.beginning.fingerprint.at("binary")},
                    {"config", xxh3_128_hex(request.keys.to_toml())},
                    {"data", run.data.stream().content_hash()}});
  const LaunchInfo& launch = request.ranks.launch;
  const at::Device device = run.model.registry.device();
  const std::string devices = describe_devices(
      gather_device_use(run.world(), {launch.node, device.is_cuda() ? device.index() : -1,
                                      num_visible_gpus(), at::get_num_threads(), allowed_cpus()}));
  if (run.world().rank() == 0) write_file_atomic(request.folder.config(), request.keys.to_toml());
  log::info(formatted(
      "{} ({}) on {}, device {}, {}, {} a rank", counted(run.world().size(), "rank"),
      run.world().backend(), counted(run.request.ranks.launch.num_nodes, "node"),
      run.model.registry.device(), train.precision, counted(at::get_num_threads(), "CPU thread")));
  log::info(cat("devices: ", devices));
  log::info(formatted("model{}: {} parameters",
                      config.model.preset.empty() ? "" : " " + config.model.preset,
                      format_count(static_cast<double>(config.model.num_parameters()))));
  if (!batch_note.empty()) log::info(batch_note);
  const bool pairs = run.data.stream().of_pairs();
  log::info(formatted("global batch {} = {} x {} x {} of {} tokens{}; {}{}", train.global_batch,
                      counted(run.model.mesh.size(Axis::dp), "data rank"),
                      counted(train.micro_batch, pairs ? "pair" : "sequence"),
                      counted(run.loader.micro_steps(), "micro-step"), train.seq_len,
                      pairs ? " a side at most" : "", run.data.size_text(), config.data.path));
  const double tokens = static_cast<double>(train.global_batch * train.seq_len) * (pairs ? 2 : 1);
  log::info(formatted("steps {} to {} ({}{} tokens a step), run folder {}", run.progress.step,
                      train.steps, pairs ? "at most " : "", format_count(tokens),
                      run.request.folder.root.string()));
}

/// All parts of a run, each from those before it, then its loop.
int train_on(const RunRequest& run, RunConfig& config, RunRecord& record) {
  Communicator& world = run.ranks.world;
  all_or_none(world, [&] {
    if (run.start.error) throw Error(*run.start.error);
  });
  const bool has_bf16 = preflight_ranks(run);
  const OpenChoice choice = choose_open_values(run, has_bf16);
  config = choice.config;
  const auto data = all_or_none(world, [&] {
    auto opened = open_data(run);
    config = resolve_by_data(run, *opened);
    config = resolve_by_start(run, *opened);
    preflight_run(run, *opened);
    leave_if_stop_asked();
    return opened;
  });
  record.claim();
  const FrozenStart frozen = keep_frozen(run, *data);
  RunMeasures measures;
  const auto model = all_or_none(world, [&] {
    auto built = with_torch_errors([&] { return build_model(run, *data, frozen, measures.all); });
    leave_if_stop_asked();
    return built;
  });
  if (frozen.model) model->frozen->load(frozen.model->checkpoint, world);
  const Beginning beginning = begin(run, *data, frozen, *model);
  const ComputePeak peak = with_torch_errors([&] { return find_peak(run, *model); });
  const auto keepers = all_or_none(world, [&] {
    return std::make_unique<Keepers>(run, *data, *model, beginning, peak, measures, record);
  });
  LoaderConfig shares{run.config.train.micro_batch, run.config.train.global_batch,
                      model->mesh.rank(Axis::dp), model->mesh.size(Axis::dp),
                      beginning.progress.next_sample};
  if (run.config.train.num_samples > 0) shares.end_sample = run.config.train.num_samples;
  const auto loader =
      all_or_none(world, [&] { return std::make_unique<DataLoader>(data->stream(), shares); });
  UpdateTargets targets(*loader, world, model->mesh);
  TrainingRun training{run, record, measures, *data, *model, *keepers, *loader, targets, beginning};
  announce(training, choice.note);
  all_or_none(world, [&] { keepers->open_sinks(run, beginning); });
  keep_peak(run, peak);
  return train_loop(training);
}

/// After Error(numeric), which all ranks throw at the same step: one of them speaks for all.
[[noreturn]] void end_diverged(const RunRequest& run, const Error& error) {
  if (run.ranks.world.rank() != 0) throw PeerFailed(exit_code(error.kind()));
  const std::string advice =
      divergence_advice(run.config, run.folder, run.program, run.name, run.ranks.world.size());
  throw AgreedError(Error(error.kind(), formatted("{}\n{}", error.what(), advice)));
}

}  // namespace

int run_task(const RunRequest& run, RunConfig& config) {
  TRIREME_ASSERT(&run.config == &config);
  RunRecord record(run);
  int code = kExitDone;
  try {
    code = with_torch_errors([&] { return train_on(run, config, record); });
  } catch (const StoppedEarly&) {
    code = record.stopped_before_first_step();
  } catch (const PeerFailed& peer) {
    record.failed("peer", peer.code(), peer.what());
    throw;
  } catch (const std::exception&) {
    const Error error = current_error();
    record.failed("error", exit_code(error.kind()), error.what());
    if (error.kind() == ErrorKind::numeric) end_diverged(run, error);
    if (is_out_of_memory(error)) log::error(memory_advice(run.config, run.ranks.world.size()));
    throw;
  }
  run.ranks.world.barrier();
  return code;
}

}  // namespace trireme
