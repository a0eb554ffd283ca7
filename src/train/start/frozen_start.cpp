#include "train/start/frozen_start.hpp"

#include <algorithm>

#include "checkpoint/exchange/lora.hpp"
#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/model_head.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/maintenance/newest.hpp"
#include "checkpoint/maintenance/reshard.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "comm/agree.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/files/directories.hpp"
#include "core/log.hpp"
#include "train/start/weights_start.hpp"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

/// Keys in RunValues::weights_sha256. FrozenModelSpec::name adds further keys.
constexpr const char* kBase = "base";
constexpr const char* kInit = "init";
constexpr std::string_view kWeights = "param/";

/// Returns true if the run takes over the whole state of another run of the same task.
bool continues_other_run(const RunRequest& run) {
  return run.start.kind == RunStart::Kind::state && run.start.values.task == run.name;
}

bool resumes(const RunRequest& run) {
  return run.start.kind == RunStart::Kind::resume_run;
}

/// Returns the saved hash of the frozen weights `name`; nullopt if the start has none.
std::optional<std::string> saved_hash(const RunRequest& run, const std::string& name) {
  const RunValues::Texts& saved = run.start.values.weights_sha256;
  const auto found = saved.find(name);
  return found == saved.end() ? std::nullopt : std::optional(found->second);
}

/// Throws Error(usage): the run directory holds imported adapters, but the run trains whole
/// weights.
[[noreturn]] void refuse_adapters(const RunRequest& run, const checkpoint::Checkpoint& checkpoint) {
  fail(
      ErrorKind::usage,
      "{} holds only adapters. To train them further, set their lora.* keys; to train the whole model, give --init {} and another --run",
      checkpoint.path().string(), run.folder.root.string());
}

/// Returns the path of the model that the run starts from: the path in checkpoint.resume, or the
/// run directory if it contains imported weights.
std::string start_place(const RunRequest& run) {
  return run.config.checkpoint.names_checkpoint() ? run.config.checkpoint.resume
                                                  : run.folder.root.string();
}

/// Checks that a frozen model fits the tokenizer and the chat format of the data. Throws
/// Error(usage).
void check_frozen_model_fits_data(const checkpoint::ModelDescription& model,
                                  const FrozenModelSpec& need, const RunRequest& run,
                                  const RunData& data) {
  const data::TokenSet& set = data.stream().first_set();
  const std::string where = model.place.string();
  checkpoint::check_head(model.values, where);
  check_frozen_tokenizer(model.files, where, need.name, set.manifest().tokenizer_hash);
  checkpoint::check_same_template(
      {cat("--data ", run.config.data.path), data.chat_template(), where,
       checkpoint::template_of(model.values), checkpoint::jinja_name_of(model.values)},
      run.config.data.allow_template_change);
  const std::int64_t rows = checkpoint::model_from_values(model.values, where).vocab_size;
  const auto least = static_cast<std::int64_t>(set.vocab_size());
  if (rows < least) {
    fail(
        ErrorKind::usage,
        "{} has a vocabulary of {} tokens, must be {} or more like that of the data set's tokenizer",
        where, rows, least);
  }
}

/// Logs the difference if the two models have embeddings of different sizes.
void log_shared_ids(const checkpoint::Checkpoint& teacher, const RunConfig& config) {
  const std::string where = teacher.path().string();
  const std::int64_t rows =
      checkpoint::model_from_values(teacher.manifest().values, where).vocab_size;
  const std::int64_t own = config.model.vocab_size;
  if (rows == own) return;
  log::info(formatted(
      "{} has {} embedding rows, the trained model has {}: their distributions are compared over the {} ids that both have",
      where, rows, own, std::min(rows, own)));
}

/// Returns work(). Adds the configuration key of the frozen model to its errors.
template <class Work>
auto with_key_in_errors(const FrozenModelSpec& need, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (need.checkpoint.empty()) throw;
    fail(error.kind(), "{} = {}: {}", need.key, need.checkpoint, error.what());
  }
}

/// Returns the copy of the frozen weights in the directory of the run that this run continues in a
/// new directory. Returns nullopt if that run had none, or if this run names another model.
std::optional<fs::path> copy_of_other_run(const RunRequest& run, const FrozenModelSpec& need) {
  if (!continues_other_run(run) || !saved_hash(run, need.name)) return std::nullopt;
  const fs::path folder = fs::path(run.start.checkpoint).parent_path().parent_path() / need.name;
  if (need.checkpoint.empty()) return folder;
  const bool same_model = run.start.values.configured(need.key) == need.checkpoint;
  return same_model && fs::exists(folder) ? std::optional(folder) : std::nullopt;
}

/// Returns the path of the model to copy into `kept`. Throws Error(data) if a resumed run, or the
/// run that this run continues, has lost its copy.
std::string source_of(const RunRequest& run, const FrozenModelSpec& need, const fs::path& kept) {
  if (const auto copy = copy_of_other_run(run, need)) {
    if (checkpoint::list_steps(*copy).empty()) {
      fail(
          ErrorKind::data,
          "{} is missing. It held the weights that the run of {} started from: restore it, or start a new run from the weights alone with --init {} instead of --resume",
          copy->string(), run.start.checkpoint, run.start.checkpoint);
    }
    return copy->string();
  }
  if (!need.checkpoint.empty()) return need.checkpoint;
  if (resumes(run)) {
    fail(
        ErrorKind::data,
        "{} is {}. It held the weights that this run started from: restore it, or start a new run with --init and another --run",
        kept.string(), checkpoint::list_steps(kept).empty() ? "missing" : "damaged");
  }
  return start_place(run);
}

/// Copies the weights that the run starts from into `kept`. Collective.
checkpoint::Checkpoint publish_start(const RunRequest& run,
                                     const std::optional<checkpoint::WholeModel>& start,
                                     const fs::path& kept) {
  comm::Communicator& world = run.ranks.world;
  checkpoint::Checkpoint source = start->checkpoint;
  if (checkpoint::holds_adapters(source))
    source = checkpoint::open_newest_good(checkpoint::base_checkpoint_path(source), world);
  return checkpoint::Checkpoint::open(checkpoint::publish_weights(source, kept, world), world);
}

/// Returns true if `kept` itself is the source: it holds the base weights of imported adapters, or
/// the command names it or a checkpoint in it.
bool is_source(const std::string& place, const std::optional<checkpoint::WholeModel>& start,
               const fs::path& kept) {
  if (lies_in(place, kept)) return true;
  return start && checkpoint::holds_adapters(start->checkpoint) &&
         lies_in(checkpoint::base_checkpoint_path(start->checkpoint), kept);
}

/// Copies the frozen weights into `kept`. Replaces a copy that an earlier start of this run left
/// before its first checkpoint, because the command may name another model now. Collective.
checkpoint::Checkpoint copy_weights(const RunRequest& run, const RunData& data,
                                    const FrozenModelSpec& need,
                                    const std::optional<checkpoint::WholeModel>& start,
                                    const fs::path& kept) {
  comm::Communicator& world = run.ranks.world;
  const std::string place = comm::all_or_none(world, [&] {
    return with_key_in_errors(need, [&] {
      const std::string found = source_of(run, need, kept);
      if (!need.checkpoint.empty())
        check_frozen_model_fits_data(checkpoint::read_model_description(found), need, run, data);
      return found;
    });
  });
  if (is_source(place, start, kept)) return checkpoint::open_newest_good(kept, world);
  comm::on_first_rank(world, [&] { remove_tree(kept); });
  auto copy = comm::all_or_none(world, [&] {
    return with_key_in_errors(need, [&] {
      const bool from_start = need.checkpoint.empty() && !copy_of_other_run(run, need);
      return from_start ? publish_start(run, start, kept)
                        : checkpoint::publish_model(place, kept, world);
    });
  });
  if (world.rank() == 0)
    log::info(formatted("{}: copied the weights of {} for this run", kept.string(), place));
  return copy;
}

FrozenWeights store_weights(const RunRequest& run, const RunData& data, const FrozenModelSpec& need,
                            const std::optional<checkpoint::WholeModel>& start) {
  comm::Communicator& world = run.ranks.world;
  const std::string& name = need.name;
  const fs::path folder = run.folder.root / name;
  std::optional<checkpoint::Checkpoint> checkpoint;
  if (resumes(run))
    checkpoint =
        checkpoint::find_newest_good(folder, world, [](std::string_view text) { log::warn(text); });
  if (!checkpoint) checkpoint = copy_weights(run, data, need, start, folder);
  if (need.same_vocabulary && world.rank() == 0) log_shared_ids(*checkpoint, run.config);
  const std::string hash = checkpoint::hash_verified(*checkpoint, world, kWeights);
  const bool has_saved = resumes(run) || copy_of_other_run(run, need).has_value();
  const auto begun_with = has_saved ? saved_hash(run, name) : std::nullopt;
  comm::all_or_none(world, [&] {
    if (begun_with && *begun_with != hash) {
      fail(ErrorKind::data,
           "{} does not hold the weights that this run started with ({}, now {}): restore them",
           folder.string(), *begun_with, hash);
    }
  });
  return {*std::move(checkpoint), name, hash};
}

/// Returns true if the run continues a run that compared its adapters with the model without them.
bool compared_with_base(const RunRequest& run) {
  const auto reference = run.start.values.configured(cat(run.name, ".reference"));
  return continues_other_run(run) && reference.value_or("").empty();
}

/// Opens the model that a new run takes its weights from. Returns nullopt if the run resumes or
/// begins with random weights. Collective.
std::optional<checkpoint::WholeModel> open_start(const RunRequest& run) {
  if (run.start.kind == RunStart::Kind::nothing || resumes(run)) return std::nullopt;
  comm::Communicator& world = run.ranks.world;
  const bool trains_them =
      run.config.lora.on() && checkpoint::holds_adapters(run.start.values.model);
  return comm::all_or_none(world, [&]() -> checkpoint::WholeModel {
    if (!trains_them && run.config.checkpoint.names_checkpoint())
      return checkpoint::open_whole_model(start_place(run), run.folder.root / kConvertedStart,
                                          world);
    checkpoint::Checkpoint found = checkpoint::open_newest_good(start_place(run), world);
    if (checkpoint::holds_adapters(found) && !trains_them) refuse_adapters(run, found);
    if (checkpoint::holds_adapters(found) && run.task.compares_with_start(run.config) &&
        !compared_with_base(run)) {
      fail(
          ErrorKind::usage,
          "{} holds adapters, which this run trains further: set {}.reference to the model to compare with, for example {}",
          found.path().string(), run.name, start_place(run));
    }
    return {std::move(found), false};
  });
}

/// Returns the hash of the weights that the run started from; "" if they were random.
std::string init_hash(const RunRequest& run, const std::optional<checkpoint::WholeModel>& start) {
  if (start) return checkpoint::hash_tensors(start->checkpoint, run.ranks.world, kWeights);
  return resumes(run) ? saved_hash(run, kInit).value_or("") : "";
}

/// Returns the shape of a model; nullopt if it cannot be read.
std::optional<model::ModelConfig> shape_at(const fs::path& place) {
  try {
    return checkpoint::model_from_values(checkpoint::read_model_description(place).values,
                                         place.string());
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<fs::path> frozen_copies(const RunRequest& run) {
  const auto need = run.task.frozen(run.config);
  if (!need) return {};
  std::vector<fs::path> places;
  if (resumes(run)) places.push_back(run.folder.root / need->name);
  if (auto other = copy_of_other_run(run, *need)) places.push_back(*std::move(other));
  return places;
}

std::vector<ModelBeside> models_beside(const Task& task, const RunConfig& config,
                                       std::span<const fs::path> copies) {
  std::vector<ModelBeside> models;
  if (task.critic()) models.push_back({.kind = ModelBeside::Kind::critic});
  if (task.copies_whole_model(config)) models.push_back({.kind = ModelBeside::Kind::copy});
  const bool makes_samples = !config.metrics.samples.empty() && config.train.eval_every > 0;
  if (makes_samples && parallel::divides_model(config.parallel))
    models.push_back({.kind = ModelBeside::Kind::copy});
  const auto need = task.frozen(config);
  if (!need) return models;
  std::optional<model::ModelConfig> shape = config.model;
  if (!need->checkpoint.empty()) {
    shape.reset();
    for (const fs::path& copy : copies)
      if (!shape) shape = shape_at(copy);
    if (!shape) shape = shape_at(need->checkpoint);
  }
  if (shape) {
    models.push_back({ModelBeside::Kind::frozen, shape->num_parameters_wide(),
                      shape->num_expert_parameters_wide(),
                      need->checkpoint.empty() ? "" : need->key});
  }
  return models;
}

void check_frozen(const RunRequest& run, const RunData& data) {
  const auto need = run.task.frozen(run.config);
  if (!need || need->checkpoint.empty()) return;
  if (resumes(run) && shape_at(run.folder.root / need->name)) return;
  with_key_in_errors(*need, [&] {
    const fs::path place = copy_of_other_run(run, *need).value_or(need->checkpoint);
    check_frozen_model_fits_data(checkpoint::read_model_description(place), *need, run, data);
  });
}

FrozenStart store_frozen_weights(const RunRequest& run, const RunData& data) {
  FrozenStart frozen;
  frozen.start = open_start(run);
  if (frozen.start) {
    comm::all_or_none(run.ranks.world, [&] {
      check_same_tokenizer(frozen.start->checkpoint,
                           data.stream().first_set().manifest().tokenizer_hash);
    });
  }
  frozen.init_sha256 = init_hash(run, frozen.start);
  if (run.config.lora.on()) frozen.base = store_weights(run, data, {.name = kBase}, frozen.start);
  if (const auto need = run.task.frozen(run.config))
    frozen.model = store_weights(run, data, *need, frozen.start);
  return frozen;
}

void remove_converted_start(const FrozenStart& frozen, const RunRequest& run) {
  comm::on_first_rank(run.ranks.world, [&] {
    if (frozen.start && frozen.start->made) remove_tree(run.folder.root / kConvertedStart);
  });
}

void put_frozen_hashes(const FrozenStart& frozen, RunValues& values) {
  RunValues::Texts& hashes = values.weights_sha256;
  if (!frozen.init_sha256.empty()) hashes[kInit] = frozen.init_sha256;
  for (const auto& kept : {frozen.base, frozen.model}) {
    if (kept) hashes[kept->name] = kept->sha256;
  }
}

}  // namespace trireme::train
