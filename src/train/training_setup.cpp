#include <algorithm>
#include <cmath>
#include <cstdlib>

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
#include "train/verdict.hpp"
#include "train/weights_start.hpp"

/// The part of a run before its first step: data, configuration, folder, model, resume.
namespace trireme {
namespace {

std::string stream_text(const SampleStream& stream) {
  if (const auto size = stream.epoch_size()) return cat(*size, " sequences in ");
  return cat(stream.num_sources(), " sources in ");
}

void require_pretrain(const char* name, const std::string& path, const TokenSet& set) {
  if (set.kind() != "pretrain")
    fail(ErrorKind::usage, name, " ", path, " is of kind ", set.kind(), ", pretrain is needed");
}

}  // namespace

TrainingRun::TrainingRun(RunConfig& config,
                         ConfigSet& keys,
                         const std::filesystem::path& folder,
                         const RunRanks& ranks)
    : config_(config), keys_(keys), folder_{folder}, ranks_(ranks), world_(ranks.world) {}

TrainingRun::~TrainingRun() = default;

void TrainingRun::prepare() {
  choose_values();
  all_or_none(world_, [&] {
    open_data();
    resolve_config();
    check_room();
  });
  all_or_none(world_, [&] { claim_folder(); });
  claimed_ = true;
  all_or_none(world_, [&] { build(); });
  resume();
  announce();
}

void TrainingRun::open_data() {
  if (config_.data.path.empty())
    fail(ErrorKind::usage,
         "--data is missing: give a token set (a folder that trireme-data pack wrote)");
  const DataConfig& data = config_.data;
  stream_.emplace(
      SampleStream::open({.phases = read_plan(data.path, "data.path"),
                          .seq_len = config_.train.seq_len,
                          .global_batch = config_.train.global_batch,
                          .seed = static_cast<std::uint64_t>(config_.train.seed),
                          .shuffle_block = static_cast<std::uint64_t>(data.shuffle_block),
                          .blend_rule = parse_blend_rule(data.blend_rule, "data.blend_rule"),
                          .packing = parse_packing(data.packing, "data.packing"),
                          .cross_documents = data.cross_documents,
                          .split = data.split}));
  const TokenSet& set = stream_->first_set();
  require_pretrain("--data", data.path, set);
  if (config_.train.seq_len == 0) config_.train.seq_len = set.seq_len();
  open_validation();
  files_ = set.tokenizer_files();
}

void TrainingRun::open_validation() {
  const DataConfig& data = config_.data;
  SampleConfig view{.seq_len = config_.train.seq_len,
                    .packing = parse_packing(data.packing, "data.packing"),
                    .cross_documents = data.cross_documents};
  if (config_.train.eval_every == 0 && world_.rank() == 0 &&
      !(data.valid_path.empty() && data.split.empty())) {
    log::warn(cat(data.valid_path.empty() ? "data.split = " + data.split
                                          : "data.valid_path = " + data.valid_path,
                  ", but train.eval_every = 0: nothing is validated"));
  }
  refuse_texts(data.valid_path, "data.valid_path");
  if (!data.valid_path.empty()) {
    valid_set_.emplace(TokenSet::open(data.valid_path));
    require_pretrain("data.valid_path", data.valid_path, *valid_set_);
    if (valid_set_->manifest().tokenizer_hash != stream_->first_set().manifest().tokenizer_hash) {
      fail(ErrorKind::usage,
           "data.valid_path ",
           data.valid_path,
           " was packed with another tokenizer than ",
           data.path);
    }
    valid_samples_.emplace_back(*valid_set_, view);
  } else if (config_.train.eval_every > 0 && data.split.empty()) {
    fail(ErrorKind::usage,
         "train.eval_every = ",
         config_.train.eval_every,
         " needs data.valid_path or data.split");
  } else if (config_.train.eval_every > 0) {
    const Split split = Split::parse(data.split, "data.split");
    const SplitPart part = data.valid_part == "test" ? SplitPart::test : SplitPart::valid;
    for (const TokenSet* set : stream_->sets()) {
      view.documents = split.part(part, set->num_documents());
      valid_samples_.emplace_back(*set, view);
    }
  }
}

std::int64_t TrainingRun::steps_of_epochs() const {
  const auto size = stream_->epoch_size();
  if (!size) {
    fail(ErrorKind::usage,
         "train.steps = 0 (train.epochs passes) needs one pass over the data, which weights and "
         "phases of data.path do not have: give train.steps");
  }
  const double steps = std::ceil(config_.train.epochs * static_cast<double>(*size) /
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
  resolve(config_.model, static_cast<std::int64_t>(stream_->first_set().vocab_size()));
  const std::int64_t longest = std::max(config_.train.seq_len, stream_->max_seq_len());
  if (longest > config_.model.max_seq_len) {
    fail(ErrorKind::usage,
         longest == config_.train.seq_len ? "train.seq_len = " : "data.path has a phase of length ",
         longest,
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
  // From here on a kill leaves a folder that the next start knows as its own.
  if (!std::filesystem::exists(folder_.status()))
    write_status(folder_, "running", kExitDone, progress_.step);
  remove_temporaries(folder_.root);
  remove_temporaries(folder_.checkpoints());
  clear_verdicts(folder_);
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
  saver_.emplace(folder_.checkpoints(),
                 run_identity(keys_, stream_->content_hash()),
                 config_.checkpoint,
                 lock_ ? &*lock_ : nullptr,
                 world_);
  model_->step.before_update([this] { saver_->wait_copied(); });
  chain_.emplace(folder_.chain(), world_.rank() == 0);
  skipped_.emplace(folder_, world_.rank(), config_.train.max_skipped_steps);
  double state_bytes = 0;
  for (const StateTensor& tensor : model_->state.tensors())
    state_bytes += tensor.owner ? static_cast<double>(tensor.bytes.size()) : 0;
  requests_.emplace(
      folder_, world_.rank() == 0, TimeLimit(TimeLimit::from_environment(), state_bytes));
}

std::string TrainingRun::layout() const {
  std::string text = cat("ranks ", world_.size(), ", micro_batch ", config_.train.micro_batch);
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::dp, Axis::pp})
    text += cat(", ", kAxisNames[static_cast<std::size_t>(axis)], " ", model_->mesh.size(axis));
  return text;
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
    all_or_none(world_,
                [&] { found = open_newest_good(config_.checkpoint.resume, /*allow_older=*/true); });
  }
  fingerprint_ = take_fingerprint(world_, model_->registry.device(), layout());
  if (found) {
    load(*found);
  } else {
    model_->registry.initialize(static_cast<std::uint64_t>(config_.train.seed));
  }
  if (progress_.step == 0) all_or_none(world_, [&] { chain_->start(0, ""); });
  const Mesh& mesh = model_->mesh;
  all_or_none(world_, [&] {
    loader_.emplace(*stream_,
                    LoaderConfig{config_.train.micro_batch,
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
      check_same_tokenizer(checkpoint, stream_->first_set().manifest().tokenizer_hash);
    } else {
      check_same_run(values, keys_, checkpoint.path().string());
      stream_->check_state(values, saved_next_sample(values), checkpoint.path().string());
      progress_ = load_progress(values, checkpoint.step(), model_->scaler);
      load_history(values);
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
  metrics_->write_resumed(progress_.step);
  log::info(cat("resumed from ",
                checkpoint.path().string(),
                " at step ",
                progress_.step,
                "; ",
                describe_equality(values, fingerprint_)));
}

void TrainingRun::save_history(std::map<std::string, std::string>& values) const {
  values["chain"] = chain_->value();
  values["skipped_in_a_row"] = cat(skipped_->in_a_row());
  metrics_->save_spikes(values);
  save_fingerprint(values, fingerprint_);
}

void TrainingRun::load_history(const std::map<std::string, std::string>& values) {
  // Absent in checkpoints of version 0.1: the chain then starts anew at this step.
  const auto chain = values.find("chain");
  chain_->start(progress_.step, chain == values.end() ? "" : chain->second);
  if (values.contains("skipped_in_a_row"))
    skipped_->restore(number_in(values, "skipped_in_a_row", 0, progress_.step));
  metrics_->restore_spikes(values);
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
  if (!batch_note_.empty()) log::info(batch_note_);
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
                stream_text(*stream_),
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
