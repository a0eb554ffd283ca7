#include <cmath>

#include "checkpoint/commands.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/model_values.hpp"
#include "checkpoint/verify.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "train/agreement.hpp"
#include "train/device.hpp"
#include "train/resume.hpp"
#include "train/training_model.hpp"
#include "train/weights_start.hpp"

/// The part of a run before its first step: data, configuration, folder, model, resume.
namespace trireme {

TrainingRun::TrainingRun(RunConfig& config,
                         ConfigSet& keys,
                         const std::filesystem::path& folder,
                         const RunRanks& ranks)
    : config_(config), keys_(keys), folder_{folder}, ranks_(ranks), world_(ranks.world) {
  all_or_none(world_, [&] {
    open_data();
    resolve_config();
  });
  all_or_none(world_, [&] { claim_folder(); });
  all_or_none(world_, [&] { build(); });
  resume();
  announce();
}

TrainingRun::~TrainingRun() = default;

void TrainingRun::open_data() {
  if (config_.data.path.empty())
    fail(ErrorKind::usage,
         "--data is missing: give a token set (a folder that trireme-data pack wrote)");
  set_.emplace(TokenSet::open(config_.data.path));
  if (set_->kind() != "pretrain")
    fail(ErrorKind::usage,
         "--data ",
         config_.data.path,
         " is of kind ",
         set_->kind(),
         ", pretrain is needed");
  if (config_.train.seq_len == 0) config_.train.seq_len = set_->seq_len();
  samples_.emplace(*set_, config_.train.seq_len);
  if (!config_.data.valid_path.empty()) {
    valid_set_.emplace(TokenSet::open(config_.data.valid_path));
    if (valid_set_->manifest().tokenizer_hash != set_->manifest().tokenizer_hash) {
      fail(ErrorKind::usage,
           "data.valid_path ",
           config_.data.valid_path,
           " was packed with another tokenizer than ",
           config_.data.path);
    }
    valid_samples_.emplace(*valid_set_, config_.train.seq_len);
  } else if (config_.train.eval_every > 0) {
    fail(ErrorKind::usage,
         "train.eval_every = ",
         config_.train.eval_every,
         " needs data.valid_path");
  }
  files_ = set_->tokenizer_files();
}

std::int64_t TrainingRun::steps_of_epochs() const {
  const double steps = std::ceil(config_.train.epochs * static_cast<double>(samples_->size()) /
                                 static_cast<double>(config_.train.global_batch));
  if (!(steps < 1e15)) {
    fail(ErrorKind::usage,
         "train.epochs = ",
         config_.train.epochs,
         " makes ",
         steps,
         " steps, must be below 1e15");
  }
  return static_cast<std::int64_t>(steps);
}

void TrainingRun::resolve_config() {
  if (const auto start = find_weights_start(folder_.checkpoints(), config_.checkpoint.resume)) {
    ModelConfig model = model_from_values(start->manifest().values, start->path().string());
    keys_.apply_preset(fields_of("model", model), "weights in " + start->path().string());
  }
  resolve(config_.model, static_cast<std::int64_t>(set_->vocab_size()));
  if (config_.train.seq_len > config_.model.max_seq_len) {
    fail(ErrorKind::usage,
         "train.seq_len = ",
         config_.train.seq_len,
         " is more than model.max_seq_len = ",
         config_.model.max_seq_len);
  }
  micro_steps_of(config_.train.global_batch,
                 config_.train.micro_batch,
                 data_ranks(config_.parallel, world_.size()));
  if (config_.train.steps == 0) config_.train.steps = steps_of_epochs();
  files_["config.toml"] = keys_.to_toml();
}

void TrainingRun::claim_folder() {
  if (world_.rank() != 0) return;
  folder_.prepare();
  lock_.emplace(folder_.root, RunLockOptions{.job_id = ranks_.job_id});
  if (config_.checkpoint.resume == "never" && !list_steps(folder_.checkpoints()).empty()) {
    fail(ErrorKind::usage,
         "checkpoint.resume = never, but ",
         folder_.checkpoints().string(),
         " holds checkpoints; give a new --run, or let it resume (auto)");
  }
}

void TrainingRun::build() {
  set_cpu_threads(config_.train.threads, ranks_.launch.local_size);
  const at::Device device = choose_device(config_.train.device, ranks_.launch.local_rank);
  use_deterministic_kernels(device);
  const ParamDTypes dtypes = precision_dtypes(config_.train.precision);
  model_ = std::make_unique<Model>(config_, ranks_, device, dtypes);
  const double peak = peak_flops(device, dtypes.compute) * world_.size();
  metrics_.emplace(
      world_, folder_.metrics(), flops_per_token(config_.model, config_.train.seq_len), peak);
  saver_.emplace(
      folder_.checkpoints(), run_identity(keys_, set_->content_hash()), config_.checkpoint, world_);
}

void TrainingRun::resume() {
  const std::int64_t newest = newest_own_step();
  std::optional<Checkpoint> found;
  if (newest >= 0) {
    if (config_.checkpoint.resume != "auto") all_or_none(world_, [&] { check_start(newest); });
    found = find_newest_good(
        folder_.checkpoints(), world_, [](std::string_view text) { log::warn(text); });
    all_or_none(world_, [&] {
      if (!found) {
        fail(ErrorKind::data,
             "no checkpoint in ",
             folder_.checkpoints().string(),
             " is whole; nothing was changed. Give another --run to start anew");
      }
      set_aside_after(found->step());  // the run will come to those steps again
    });
    saved_step_ = found->step();
  } else if (config_.checkpoint.resume != "auto" && config_.checkpoint.resume != "never") {
    all_or_none(world_, [&] { found = open_newest_good(config_.checkpoint.resume); });
  }
  if (found) {
    load(*found);
  } else {
    model_->registry.initialize(static_cast<std::uint64_t>(config_.train.seed));
  }
  const Mesh& mesh = model_->mesh;
  all_or_none(world_, [&] {
    loader_.emplace(*samples_,
                    LoaderConfig{static_cast<std::uint64_t>(config_.train.seed),
                                 true,
                                 config_.train.micro_batch,
                                 config_.train.global_batch,
                                 mesh.rank(Axis::data),
                                 mesh.size(Axis::data),
                                 progress_.next_sample});
  });
}

std::int64_t TrainingRun::newest_own_step() const {
  std::int64_t newest = -1;
  if (world_.rank() == 0) {
    const std::vector<std::int64_t> steps = list_steps(folder_.checkpoints());
    if (!steps.empty()) newest = steps.front();
  }
  world_.broadcast(&newest, 1, DType::i64, 0, {}, "newest step")->wait();
  return newest;
}

void TrainingRun::check_start(std::int64_t newest) const {
  const std::string& start = config_.checkpoint.resume;
  const std::string newest_name = step_folder_name(newest);
  std::error_code code;
  const std::filesystem::path place = std::filesystem::canonical(start, code);
  if (!code && place.filename() != newest_name &&
      std::filesystem::equivalent(place.parent_path(), folder_.checkpoints(), code)) {
    fail(ErrorKind::usage,
         "checkpoint.resume = ",
         start,
         " is not the newest checkpoint of this run, ",
         newest_name,
         ": give another --run to branch off there, or resume auto to go on");
  }
  log::info(
      cat("this run has ", newest_name, " of its own: it goes on from there, not from ", start));
}

void TrainingRun::set_aside_after(std::int64_t step) const {
  if (world_.rank() != 0) return;
  for (const std::int64_t damaged : list_steps(folder_.checkpoints())) {
    if (damaged > step)
      log::warn(cat("moved to ", set_aside_step(folder_.checkpoints(), damaged).string()));
  }
}

void TrainingRun::load(const Checkpoint& checkpoint) {
  const auto& values = checkpoint.manifest().values;
  const bool weights_only = is_weights_only(checkpoint);
  all_or_none(world_, [&] {
    if (weights_only) {
      check_same_model(checkpoint, config_.model);
      check_same_tokenizer(checkpoint, set_->manifest().tokenizer_hash);
    } else {
      check_same_run(values, keys_, checkpoint.path().string());
      if (values.at("data.content_hash") != set_->content_hash()) {
        fail(ErrorKind::usage,
             "--data ",
             config_.data.path,
             " holds other tokens than ",
             checkpoint.path().string(),
             " was trained on");
      }
    }
  });
  StateDict state;
  for (StateTensor& tensor : model_->state.tensors()) {
    if (!weights_only || tensor.name.starts_with("param/")) state.tensors.push_back(tensor);
  }
  load_tensors(checkpoint, state, world_);
  model_->state.unstage();
  model_->registry.refresh_weights();
  if (weights_only) {
    log::info(cat("starting from the weights of ", checkpoint.path().string()));
    return;
  }
  progress_ = load_progress(values, model_->scaler);
  metrics_->write_resumed(progress_.step);
  log::info(cat("resumed from ", checkpoint.path().string(), " at step ", progress_.step));
}

void TrainingRun::announce() const {
  if (world_.rank() == 0) {
    write_status(folder_, "running", kExitDone, progress_.step);
    write_file_atomic(folder_.config(), keys_.to_toml());
  }
  const TrainConfig& train = config_.train;
  const std::int64_t data_ranks = model_->mesh.size(Axis::data);
  log::info(cat(world_.size(),
                " ranks (",
                world_.backend(),
                ") on ",
                ranks_.launch.num_nodes,
                " nodes, device ",
                model_->registry.device(),
                ", ",
                train.precision,
                ", ",
                at::get_num_threads(),
                " CPU threads a rank"));
  log::info(cat("model ",
                config_.model.preset,
                ": ",
                format_count(static_cast<double>(config_.model.num_parameters())),
                " parameters"));
  log::info(cat("global batch ",
                train.global_batch,
                " = ",
                data_ranks,
                " data ranks x ",
                train.micro_batch,
                " sequences x ",
                loader_->micro_steps(),
                " micro-steps of ",
                train.seq_len,
                " tokens; ",
                samples_->size(),
                " sequences in ",
                config_.data.path));
  log::info(cat("steps ",
                progress_.step,
                " to ",
                train.steps,
                " (",
                format_count(static_cast<double>(train.global_batch * train.seq_len)),
                " tokens a step), run folder ",
                folder_.root.string()));
}

}  // namespace trireme
