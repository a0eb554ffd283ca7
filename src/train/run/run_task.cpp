#include "train/run/run_task.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/manifest.hpp"
#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/escape.hpp"
#include "core/files/file.hpp"
#include "core/files/refusal.hpp"
#include "core/hash/xxh3.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "core/problems.hpp"
#include "core/process/stop_signals.hpp"
#include "data/order/length_warning.hpp"
#include "data/order/plan.hpp"
#include "data/shards/set_content.hpp"
#include "device/device.hpp"
#include "device/torch_errors.hpp"
#include "job/doctor/findings.hpp"
#include "job/doctor/shared_directories.hpp"
#include "optim/schedule.hpp"
#include "train/audit/distribution_record.hpp"
#include "train/health/memory_advice.hpp"
#include "train/health/memory_need.hpp"
#include "train/report/device_use.hpp"
#include "train/report/progress_line.hpp"
#include "train/run/training_run.hpp"
#include "train/start/resolve_config.hpp"
#include "train/start/run_length.hpp"

namespace trireme::train {
namespace {

/// Throws on all ranks the errors that `trireme doctor` reports. Collective.
void check_ranks(const RunRequest& run) {
  comm::Communicator& world = run.ranks.world;
  const comm::LaunchInfo& launch = run.ranks.launch;
  const std::string& wanted = run.config.train.device;
  const at::Device device = device::choose_device(wanted, launch.local_rank);
  job::RankFacts mine = job::own_facts(launch, run.config.train.threads);
  mine.device.gpu = device::gpu_identity(device);
  mine.device.num_gpus = device.is_cuda() ? device::num_visible_gpus() : 0;
  mine.device.was_chosen = wanted != "auto";
  if (wanted != "cpu") {
    const device::CudaVersions cuda = device::cuda_versions();
    mine.cuda_driver = cuda.driver;
    mine.cuda_runtime = cuda.runtime;
  }
  const auto all = comm::gather_texts(world, job::to_text(mine));
  std::vector<job::RankFacts> ranks;
  std::vector<job::Finding> findings = comm::all_or_none(world, [&] {
    for (const std::string& text : all) ranks.push_back(job::rank_facts_from(text));
    return job::findings_of(ranks);
  });
  if (launch.num_nodes > 1) {
    for (job::Finding& one :
         job::check_run_is_shared(world, launch, job::devices_of(ranks), run.folder.root))
      findings.push_back(std::move(one));
  }
  comm::all_or_none(world, [&] {
    Problems problems;
    for (const job::Finding& one : findings) {
      if (one.severity == job::Finding::Severity::error) problems.add(one.line());
    }
    problems.throw_if_any();
  });
}

/// Warns about each data set that loses tokens at a sequence length below its packed length.
void warn_of_length(const RunData& data) {
  for (const data::SampleSet* samples : data.sample_sets()) {
    const std::string text = data::length_warning(*samples, "train.seq_len =");
    if (!text.empty()) log::warn(text);
  }
}

/// Warns about each phase of data.path that begins after the last step.
void warn_of_unused_phases(const RunRequest& run) {
  const auto phases = data::read_plan(run.config.data.path, "data.path", run.task.set_kinds());
  const std::int64_t last_step = run.config.train.steps;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    if (phases[i].first_step <= last_step) continue;
    log::warn(formatted(
        "data.path: phase {} begins at step {}, but the run ends at step {}. The run does not use "
        "this phase.",
        i + 1, phases[i].first_step, last_step));
  }
}

/// Checks devices, threads and libraries of all ranks. These checks run before any operation that
/// waits for the devices of all ranks. Returns true if the devices of all ranks support bf16.
/// Collective; throws on all ranks.
bool preflight_ranks(const RunRequest& run) {
  comm::Communicator& world = run.ranks.world;
  const std::int64_t bf16 = comm::all_or_none(world, [&] {
    return device::with_torch_errors([&] {
      const at::Device device =
          device::choose_device(run.config.train.device, run.ranks.launch.local_rank);
      check_fp8_device(run.config.train, device);
      return device::has_bf16(device) ? 1 : 0;
    });
  });
  check_ranks(run);
  // All ranks use one precision, even if their nodes have different GPUs.
  return comm::all_reduce_value(world, bf16, comm::ReduceOp::min, "bf16") != 0;
}

/// Throws Error(usage) if train.profile names a rank or a step that the run does not have. A
/// resumed run may keep a profile of another layout or of steps that are over.
void check_profile(const RunRequest& run) {
  const TrainConfig& train = run.config.train;
  const bool is_kept = run.start.kind == RunStart::Kind::resume_run &&
                       !run.keys.origin("train.profile").starts_with("--");
  if (train.profile.empty() || is_kept) return;
  const ProfileRequest request = parse_profile(train.profile);
  check_profile_ranks(request, run.ranks.world.size());
  if (request.last_step > train.steps)
    fail(ErrorKind::usage, "train.profile = {}: step {} does not exist. The run ends at step {}",
         train.profile, request.last_step, train.steps);
}

/// Checks the resolved configuration before the run changes anything: files of the task, its frozen
/// model, and memory. Rank 0 warns about data sets that lose tokens at this sequence length, and
/// about data that the run does not use. Throws Error(usage), Error(data) or Error(resource).
void preflight_run(const RunRequest& run, const RunData& data) {
  run.task.check_files(run.config, data.sample_sets());
  if (run.ranks.world.rank() == 0) {
    warn_of_length(data);
    warn_of_unused_phases(run);
  }
  check_frozen(run, data);
  check_profile(run);
  const SampleTexts samples(run, data);  // reads and checks the prompts
  RunConfig whole = run.config;
  whole.train.micro_batch *= run.task.rows_per_sample();
  device::with_torch_errors([&] {
    check_free_memory(whole, run.ranks.launch, run.ranks.world.size(), run.keys,
                      !data.stream().samples_are_pairs(),
                      models_beside(run.task, run.config, frozen_copies(run)));
  });
}

/// Writes and logs the proof that the ranks share the work and have the same parameters.
void record_distribution(const TrainingRun& run, const Json& distribution) {
  write_file_atomic(run.request.folder.distribution(), distribution.dump(2) + "\n");
  const std::string text = cat("distribution: ", distribution_text(distribution));
  if (distribution.at("parameters").at("identical").get<bool>()) {
    log::info(text);
  } else {
    log::error(text);
  }
}

void announce(const TrainingRun& run, const std::string& batch_note) {
  const RunConfig& config = run.config();
  const TrainConfig& train = config.train;
  const RunRequest& request = run.request;
  run.record.begin(run.progress.step, run.beginning.own_step,
                   {{"binary", run.beginning.fingerprint.at("binary")},
                    {"config", xxh3_128_hex(request.keys.to_toml())},
                    {"data", run.data.stream().content_hash()}});
  run.services.metrics.set_hosts(run.record.hosts());
  const comm::LaunchInfo& launch = request.ranks.launch;
  const at::Device device = run.model.registry.device();
  const std::string devices = describe_devices(gather_device_use(
      run.world(), {launch.node, device.is_cuda() ? device.index() : -1, device::num_visible_gpus(),
                    at::get_num_threads(), allowed_cpu_mask()}));
  if (run.world().rank() == 0) write_file_atomic(request.folder.config(), request.keys.to_toml());
  log::info(formatted(
      "{} ({}) on {}, device {}, {}, {} a rank", counted(run.world().size(), "rank"),
      run.world().backend(), counted(run.request.ranks.launch.num_nodes, "node"),
      run.model.registry.device(), train.precision, counted(at::get_num_threads(), "CPU thread")));
  log::info(cat("devices: ", devices));
  const Json distribution =
      distribution_record(run.world(), run.model.registry, run.model.mesh, launch,
                          at::get_num_threads(), config.parallel.zero == 3);
  if (run.world().rank() == 0) record_distribution(run, distribution);
  log::info(formatted("model{}: {} parameters",
                      config.model.preset.empty() ? "" : " " + config.model.preset,
                      format_count(static_cast<double>(config.model.num_parameters()))));
  if (!batch_note.empty()) log::info(batch_note);
  const bool pairs = run.data.stream().samples_are_pairs();
  const data::SetContent& content = run.data.stream().first_set().contents();
  const std::int64_t rows = pairs ? 2 : request.task.rows_per_sample();
  const data::BatchPhases phases = config.batch_phases();
  const std::int64_t batch = phases.global_batch(run.progress.step + 1);
  log::info(
      formatted("global batch {}{} = {} x {} x {} of {} tokens{}; {}{}", batch,
                phases.phases().size() > 1 ? " (the next step)" : "",
                counted(run.model.mesh.size(parallel::Axis::dp), "data rank"),
                counted(train.micro_batch,
                        content.has_sequences() ? std::string_view("sequence") : content.document),
                counted(run.micro_steps(), "accumulation step"), train.seq_len,
                pairs                   ? " a side at most"
                : content.has_prompts() ? formatted(" at most, {} answers a prompt", rows)
                                        : "",
                run.data.size_text(), config.data.path));
  log::info(formatted("steps {} to {} ({}{}), run directory {}", run.progress.step, train.steps,
                      content.has_sequences() ? "" : "at most ",
                      tokens_per_step(phases, run.progress.step, train.steps, train.seq_len * rows),
                      run.request.folder.root.string()));
}

/// Copies resolved values into `config` in place. The keys of the run point to members of `config`,
/// also to elements of its lists of own keys (core/own_keys.hpp), which a move would free. Both
/// sides have lists of the same length, so the copy keeps the elements.
void set_values(RunConfig& config, const RunConfig& resolved) {
  config = resolved;
}

/// Creates all parts of a run in order, then runs the training loop.
int train_on(const RunRequest& run, RunConfig& config, RunRecord& record) {
  comm::Communicator& world = run.ranks.world;
  comm::all_or_none(world, [&] {
    if (run.start.error) throw Error(*run.start.error);
  });
  const bool has_bf16 = preflight_ranks(run);
  const OpenChoice choice = choose_open_values(run, has_bf16);
  set_values(config, choice.config);
  const auto data = comm::all_or_none(world, [&] {
    auto opened = open_data(run);
    set_values(config, resolve_by_data(run, *opened));
    set_values(config, resolve_by_start(run, *opened));
    preflight_run(run, *opened);
    throw_if_stop_requested();
    return opened;
  });
  record.claim();
  const FrozenStart frozen = store_frozen_weights(run, *data);
  RunMeasures measures;
  const auto model = comm::all_or_none(world, [&] {
    auto built =
        device::with_torch_errors([&] { return build_model(run, *data, frozen, measures.all); });
    throw_if_stop_requested();
    return built;
  });
  if (frozen.model) model->frozen->load(frozen.model->checkpoint, world);
  const StartState beginning = begin(run, *data, frozen, *model);
  const ComputePeak peak =
      device::with_torch_errors([&] { return find_compute_peak(run, *model); });
  const auto services = comm::all_or_none(world, [&] {
    return std::make_unique<TrainerServices>(run, *data, *model, beginning, peak, measures, record);
  });
  SampleTexts sample_texts = comm::all_or_none(world, [&] { return SampleTexts(run, *data); });
  TrainingRun training{run, record, measures, *data, *model, *services, beginning, sample_texts};
  if (!config.train.profile.empty())
    (void)training.profile.request(parse_profile(config.train.profile), training.progress.step);
  announce(training, choice.note);
  comm::all_or_none(world, [&] { services->open_sinks(run, beginning); });
  store_compute_peak(run, peak);
  return train_loop(training);
}

constexpr std::int64_t kLeastWarmup = 100;

/// Returns the run directory with the first free number, such as "runs/first-2".
std::filesystem::path next_folder(const std::filesystem::path& run) {
  const std::filesystem::path plain = run.has_filename() ? run : run.parent_path();
  for (int number = 2;; ++number) {
    std::filesystem::path next = plain;
    next += formatted("-{}", number);
    std::error_code code;
    if (!std::filesystem::exists(next, code)) return next;
  }
}

/// Returns advice on a run that diverged: a command line that starts a new run with half the
/// learning rate. The new run starts from the newest checkpoint. If there is no checkpoint, the new
/// run starts from the beginning.
std::string divergence_advice(const RunRequest& run) {
  const RunConfig& config = run.config;
  const job::RunDirectory& folder = run.folder;
  const int ranks = run.ranks.world.size();
  const std::vector<std::int64_t> steps = checkpoint::list_steps(folder.checkpoints());
  const double lr = config.optim.lr / 2;
  std::string command = formatted("{} {}", shell_word(run.program), run.name);
  command += steps.empty() ? formatted(" --config {}", shell_word(folder.config().string()))
                           : formatted(" --resume {}",
                                       shell_word((folder.checkpoints() /
                                                   checkpoint::step_directory_name(steps.front()))
                                                      .string()));
  command += formatted(" --run {}", shell_word(next_folder(folder.root).string()));
  command += config.optim.schedule == optim::kPiecewiseSchedule
                 ? formatted(" --optim.points {}", optim::scaled_points(config.optim, 0.5))
                 : formatted(" --optim.lr {}", number_text(lr));
  if (config.optim.min_lr > lr) command += formatted(" --optim.min_lr {}", number_text(lr));
  if (steps.empty() && config.optim.schedule != optim::kPiecewiseSchedule) {
    const std::int64_t warmup = std::min(std::max(2 * config.optim.warmup_steps, kLeastWarmup),
                                         std::max<std::int64_t>(config.train.steps / 2, 1));
    command += formatted(" --optim.warmup_steps {}", warmup);
  }
  if (config.train.precision == "fp16") command += " --train.precision bf16";
  return formatted("a new run {} with half the learning rate{}:\n  {}",
                   steps.empty() ? "from the beginning" : "from the last checkpoint",
                   ranks > 1 ? formatted(", under the launcher of this one ({} ranks)", ranks) : "",
                   command);
}

/// Handles Error(numeric). All ranks throw this error at the same step, and only rank 0 reports it.
/// Exception: an agreed error is thrown on one rank, which reports it.
[[noreturn]] void end_diverged(const RunRequest& run, const Error& error, bool is_agreed) {
  if (!is_agreed && run.ranks.world.rank() != 0) throw comm::PeerFailed(exit_code(error.kind()));
  throw comm::AgreedError(
      Error(error.kind(), formatted("{}\n{}", error.what(), divergence_advice(run))));
}

}  // namespace

int run_task(const RunRequest& run, RunConfig& config) {
  TRIREME_ASSERT(&run.config == &config);
  RunRecord record(run);
  int code = kExitDone;
  try {
    code = device::with_torch_errors([&] { return train_on(run, config, record); });
  } catch (const StoppedEarly&) {
    code = record.stopped_before_first_step();
  } catch (const comm::PeerFailed& peer) {
    record.failed("peer", peer.code(), peer.what());
    throw;
  } catch (const RolloutGapError& error) {
    record.failed("error", exit_code(error.kind()), error.what());
    throw;
  } catch (const std::exception& thrown) {
    const Error error = current_error();
    record.failed("error", exit_code(error.kind()), error.what());
    const bool is_agreed = dynamic_cast<const comm::AgreedError*>(&thrown) != nullptr;
    if (error.kind() == ErrorKind::numeric) end_diverged(run, error, is_agreed);
    if (is_out_of_memory(error))
      log::error(memory_advice(run.config, run.ranks.world.size(), run.task.rows_per_sample()));
    throw;
  }
  run.ranks.world.barrier();
  return code;
}

}  // namespace trireme::train
