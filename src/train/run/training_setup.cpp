#include <algorithm>
#include <cstdlib>

#include "checkpoint/format/folder.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/log.hpp"
#include "core/process/stop_signals.hpp"
#include "parallel/device.hpp"
#include "parallel/torch_errors.hpp"
#include "train/control/verdict.hpp"
#include "train/report/progress_line.hpp"
#include "train/run/training_model.hpp"
#include "train/state/resume.hpp"

/// The part of a run before its first step: data, configuration, folder, model, resume.
namespace trireme {
TrainingRun::TrainingRun(const Task& task, RunConfig& config, ConfigSet& keys,
                         const std::filesystem::path& folder, const RunRanks& ranks, RunStart start)
    : task_(task),
      config_(config),
      keys_(keys),
      folder_{folder},
      ranks_(ranks),
      start_(std::move(start)),
      world_(ranks.world) {}

TrainingRun::~TrainingRun() = default;

void TrainingRun::prepare() {
  all_or_none(world_, [&] {
    if (start_.error) throw Error(*start_.error);
  });
  choose_values();
  all_or_none(world_, [&] {
    open_data();
    resolve_config();
    with_torch_errors([&] { check_room(); });
    leave_if_stop_asked();
  });
  all_or_none(world_, [&] { claim_folder(); });
  claimed_ = true;
  all_or_none(world_, [&] {
    with_torch_errors([&] { build(); });
    leave_if_stop_asked();
  });
  resume();
  announce();
}

void TrainingRun::open_data() {
  const DataConfig& data = config_.data;
  if (data.path.empty())
    fail(
        ErrorKind::usage,
        "--data is missing: give a token set (a folder that trireme-data pack wrote); in {} is no run to go on from",
        folder_.root.string());
  if (config_.train.eval_every == 0 && world_.rank() == 0 &&
      !(data.valid_path.empty() && data.split.empty())) {
    log::warn(formatted("{}, but train.eval_every = 0: nothing is validated",
                        data.valid_path.empty() ? "data.split = " + data.split
                                                : "data.valid_path = " + data.valid_path));
  }
  data_ = std::make_unique<RunData>(config_, task_.set_kind);
  files_ = data_->tokenizer_files();
}

void TrainingRun::resolve_config() {
  resolve(config_.model, static_cast<std::int64_t>(data_->stream().first_set().vocab_size()));
  const std::int64_t longest = std::max(config_.train.seq_len, data_->stream().max_seq_len());
  if (longest > config_.model.max_seq_len) {
    fail(ErrorKind::usage, "{}{} is more than model.max_seq_len = {}",
         longest == config_.train.seq_len ? "train.seq_len = " : "data.path has a phase of length ",
         longest, config_.model.max_seq_len);
  }
  micro_steps_of(config_.train.global_batch, config_.train.micro_batch,
                 data_ranks(config_.parallel, world_.size()));
  check_start();
  const bool fresh_data =
      start_.kind == RunStart::Kind::state && !other_data(start_.values, start_.checkpoint).empty();
  if (config_.train.steps == 0)
    config_.train.steps = data_->steps_of_epochs(config_.train) + (fresh_data ? start_.step() : 0);
  check_steps(start_.step());
  if (start_.kind == RunStart::Kind::weights) config_.checkpoint.start = "weights";
  files_["config.toml"] = keys_.to_toml();
}

void TrainingRun::claim_folder() {
  if (world_.rank() != 0) return;
  folder_.prepare();
  lock_.emplace(folder_.root, RunLockOptions{.job_id = ranks_.job_id});
  // From here on a kill leaves a folder that the next start knows as its own.
  if (!std::filesystem::exists(folder_.status()))
    write_status(folder_, "running", kExitDone, progress_.step, -1);
  remove_temporaries(folder_.root);
  remove_temporaries(folder_.checkpoints());
  clear_verdicts(folder_);
  if (config_.checkpoint.resume == "never" && !start_.begun_anew() &&
      !list_steps(folder_.checkpoints()).empty()) {
    fail(
        ErrorKind::usage,
        "checkpoint.resume = never, but {} holds checkpoints; give a new --run, or let it resume (auto)",
        folder_.checkpoints().string());
  }
}

void TrainingRun::build() {
  set_cpu_threads(config_.train.threads, ranks_.launch.local_size);
  const at::Device device = choose_device(config_.train.device, ranks_.launch.local_rank);
  use_deterministic_kernels(device);
  const ParamDTypes dtypes = precision_dtypes(config_.train.precision);
  model_ = std::make_unique<Model>(config_, task_, ranks_, device, dtypes, measures_.all);
  const double peak = peak_flops(device, dtypes.compute) * world_.size();
  metrics_.emplace(world_, measures_.all,
                   ComputeRates{config_.model.flops_per_token(config_.train.seq_len), peak});
  saver_.emplace(folder_.checkpoints(), run_identity(keys_, data_->stream().content_hash()),
                 config_.checkpoint, lock_ ? &*lock_ : nullptr, world_);
  saver_->on_commit([this](std::int64_t step) {
    const auto error = capture([&] { write_status(folder_, "running", kExitDone, step, step); });
    if (error) log::warn(error->what());
  });
  model_->step.before_update([this] {
    if (!saver_->in_flight()) return;
    const Timer timer;
    saver_->wait_copied();
    measures_.all.record(measures_.save_s, timer.seconds());
  });
  chain_.emplace(folder_.chain(), world_.rank() == 0);
  skipped_.emplace(folder_, world_.rank(), config_.train.max_skipped_steps);
  double state_bytes = 0;
  for (const StateTensor& tensor : model_->state.tensors())
    state_bytes += tensor.owner ? static_cast<double>(tensor.bytes.size()) : 0;
  saver_->reserve(static_cast<std::size_t>(state_bytes));
  requests_.emplace(folder_, world_.rank() == 0,
                    TimeLimit(TimeLimit::from_environment(), state_bytes));
}

std::string TrainingRun::layout() const {
  std::string text =
      formatted("ranks {}, micro_batch {}", world_.size(), config_.train.micro_batch);
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::dp, Axis::pp})
    text +=
        formatted(", {} {}", kAxisNames[static_cast<std::size_t>(axis)], model_->mesh.size(axis));
  return text;
}

void TrainingRun::announce() const {
  if (world_.rank() == 0) {
    write_status(folder_, "running", kExitDone, progress_.step, saved_step_);
    write_file_atomic(folder_.config(), keys_.to_toml());
  }
  const TrainConfig& train = config_.train;
  const std::int64_t data_ranks = model_->mesh.size(Axis::data);
  log::info(formatted("{} ranks ({}) on {} nodes, device {}, {}, {} CPU threads a rank",
                      world_.size(), world_.backend(), ranks_.launch.num_nodes,
                      model_->registry.device(), train.precision, at::get_num_threads()));
  log::info(formatted("model{}: {} parameters",
                      config_.model.preset.empty() ? "" : " " + config_.model.preset,
                      format_count(static_cast<double>(config_.model.num_parameters()))));
  if (!batch_note_.empty()) log::info(batch_note_);
  log::info(formatted(
      "global batch {} = {} data ranks x {} sequences x {} micro-steps of {} tokens; {}{}",
      train.global_batch, data_ranks, train.micro_batch, loader_->micro_steps(), train.seq_len,
      data_->size_text(), config_.data.path));
  log::info(formatted("steps {} to {} ({} tokens a step), run folder {}", progress_.step,
                      train.steps,
                      format_count(static_cast<double>(train.global_batch * train.seq_len)),
                      folder_.root.string()));
}

}  // namespace trireme
