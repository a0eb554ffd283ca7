#include "train/start/begin.hpp"

#include <array>
#include <cmath>
#include <optional>

#include "checkpoint/exchange/special_tokens.hpp"
#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/model_head.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/maintenance/newest.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "objective/bradley_terry.hpp"
#include "train/start/critic_start.hpp"
#include "train/start/resolve_config.hpp"
#include "train/start/run_length.hpp"
#include "train/start/weights_start.hpp"
#include "train/state/continuation.hpp"
#include "train/state/resume.hpp"

namespace trireme::train {
namespace {

/// Files of an imported model that token sets may not have. A file of the set takes precedence.
constexpr std::array kCarriedFiles{checkpoint::kGenerationConfigFile, "special_tokens_map.json",
                                   "tokenizer_config.json"};

/// Values that describe the model for exports and that training does not change.
constexpr std::array kCarriedValues{checkpoint::kChatTemplateValue,
                                    checkpoint::kImportedTemplateValue,
                                    checkpoint::kImportedJinjaValue, checkpoint::kHfFamilyValue};

/// Returns true if the run resumes and still validates on the same data.
bool validates_on_same_data(const RunRequest& run, const RunValues& saved) {
  if (run.start.kind != RunStart::Kind::resume_run) return false;
  for (const char* key :
       {"data.valid_path", "data.split", "data.valid_part", "data.valid_tokens"}) {
    auto before = saved.configured(key);
    if (!before) before = value_of_older_versions(key);
    if (before != run.keys.value(key)) return false;
  }
  return true;
}

/// Handles a path in checkpoint.resume if the run already has its own checkpoints. The run then
/// resumes from its own newest checkpoint and not from the path. Throws Error(usage) if the path is
/// an older checkpoint of this run, because a run cannot go back.
void check_named(const RunRequest& run, std::int64_t newest) {
  const std::string& start = run.config.checkpoint.resume;
  const std::string newest_name = checkpoint::step_directory_name(newest);
  std::error_code code;
  const std::filesystem::path place = std::filesystem::canonical(start, code);
  if (!code && place.filename() != newest_name &&
      std::filesystem::equivalent(place.parent_path(), run.folder.checkpoints(), code)) {
    fail(
        ErrorKind::usage,
        "checkpoint.resume = {} is not the newest checkpoint of this run, {}: give another --run to start from the older one, or --resume auto to resume this run",
        start, newest_name);
  }
  // A resumed run reads the key from its own configuration, so the user did not name a start.
  if (run.keys.origin("checkpoint.resume").starts_with(run.folder.config().string())) return;
  const auto begun = run.start.values.configured("checkpoint.resume");
  namespace fs = std::filesystem;
  const bool is_typed_again = begun && fs::weakly_canonical(start) == fs::weakly_canonical(*begun);
  const std::string text = formatted(
      "this run already has the checkpoint {}. It resumes from this checkpoint, not from {}",
      newest_name, start);
  is_typed_again ? log::info(text)
                 : log::warn(cat(text,
                                 ", with which it did not begin: give another --run to start "
                                 "from there"));
}

/// Renames unusable checkpoints of later steps, on rank 0.
void set_aside_after(const RunRequest& run, std::int64_t step) {
  if (run.ranks.world.rank() != 0) return;
  const auto& folder = run.folder.checkpoints();
  for (const std::int64_t damaged : checkpoint::list_steps(folder)) {
    if (damaged > step)
      log::warn(formatted("moved to {}", checkpoint::set_aside_step(folder, damaged).string()));
  }
}

/// Returns the run's newest valid checkpoint. `newest` is the newest step in the directory.
checkpoint::Checkpoint find_own(const RunRequest& run, std::int64_t newest) {
  comm::Communicator& world = run.ranks.world;
  const auto folder = run.folder.checkpoints();
  if (run.config.checkpoint.names_checkpoint())
    comm::all_or_none(world, [&] { check_named(run, newest); });
  if (newest < run.start.committed && world.rank() == 0)
    log::warn(formatted(
        "step {} was committed, but {} has only step {} and older: the missing steps are repeated",
        run.start.committed, folder.string(), newest));
  auto found =
      checkpoint::find_newest_good(folder, world, [](std::string_view text) { log::warn(text); });
  comm::all_or_none(world, [&] {
    if (!found) throw no_complete_checkpoint(folder);
    set_aside_after(run, found->step());  // the run will write these steps again
  });
  return *std::move(found);
}

void log_start(const RunRequest& run, const RunData& data, const StartState& beginning,
               const checkpoint::Checkpoint& checkpoint, const RunValues& values,
               const std::string& fresh_data, at::Device device) {
  const bool is_own = run.start.kind == RunStart::Kind::resume_run;
  // The checkpoint of a converted start is deleted after the start, so name its source.
  const std::string where = is_own || checkpoint.path().parent_path().filename() != kConvertedStart
                                ? checkpoint.path().string()
                                : run.start.checkpoint;
  if (!beginning.has_training_state) {
    log::info(formatted("starting from the weights of {}", where));
  } else {
    const Continuation continuation{values,
                                    run.config,
                                    run.keys,
                                    beginning.fingerprint,
                                    fresh_data.empty() ? data.stream().plan_hash() : "",
                                    beginning.progress.step,
                                    device.is_cuda()};
    log::info(formatted("resumed from {} at step {}; {}", where, beginning.progress.step,
                        fresh_data.empty()
                            ? describe_continuation(continuation)
                            : formatted("the data begins at sample 0: {}", fresh_data)));
  }
  if (is_own) return;
  const auto changes = changed_keys(values, run.keys);
  if (!changes.empty())
    log::info(formatted("configuration that differs from {}: {}", where, changes_text(changes)));
}

constexpr std::string_view kAverageTensors = "optim/ema/";

bool holds_average(const checkpoint::Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.manifest().tensors;
  const auto first = tensors.lower_bound(std::string(kAverageTensors));
  return first != tensors.end() && first->first.starts_with(kAverageTensors);
}

/// Returns true if the run trains adapters and the checkpoint that it starts from has none.
bool creates_adapters(const RunRequest& run) {
  return run.config.lora.on() && !checkpoint::holds_adapters(run.start.values.model);
}

/// Returns the name of the tensor of a reward head if the model has one and the checkpoint does
/// not, else "". Such a head keeps its initial values.
std::string new_reward_head(const parallel::ParamRegistry& registry,
                            const checkpoint::Checkpoint& checkpoint) {
  const std::string name = cat("param/", objective::kRewardHead);
  if (checkpoint.manifest().tensors.contains(name)) return "";
  for (parallel::ParamId id = 0; id < registry.size(); ++id)
    if (registry.spec(id).name == objective::kRewardHead) return name;
  return "";
}

/// Keeps the Jinja text of the model's chat template, because the tokenizer directory with which
/// texts were packed may have none or another one.
void carry_chat_template(const checkpoint::Checkpoint& checkpoint,
                         std::map<std::string, std::string>& files) {
  std::map<std::string, std::string> of_model;
  for (const char* name : {"tokenizer_config.json", "chat_template.jinja"})
    if (checkpoint.has_file(name)) of_model[name] = checkpoint.file(name);
  if (!checkpoint::template_of_files(of_model).empty())
    files["chat_template.jinja"] = checkpoint::jinja_of(of_model);
}

/// Loads the required parts of the checkpoint into the model and `beginning`. Collective.
void load(const RunRequest& run, const RunData& data, const checkpoint::Checkpoint& checkpoint,
          RunModel& model, StartState& beginning) {
  const RunValues values = comm::all_or_none(
      run.ranks.world, [&] { return RunValues::from_values(checkpoint.manifest().values); });
  const std::string where = checkpoint.path().string();
  const RunStart::Kind kind = run.start.kind;
  beginning.has_training_state = kind != RunStart::Kind::weights && values.is_training_state();
  std::string fresh_data;
  checkpoint::StateDict state;
  const bool new_adapters = creates_adapters(run);
  const std::string new_head = new_reward_head(model.registry, checkpoint);
  beginning.has_average = beginning.has_training_state && holds_average(checkpoint);
  for (checkpoint::StateTensor& tensor : model.state.tensors()) {
    if (tensor.name == new_head) continue;
    // A branch of a run without an EMA starts its EMA from the loaded weights.
    if (!beginning.has_average && tensor.name.starts_with(kAverageTensors)) continue;
    if (beginning.has_training_state || (!new_adapters && tensor.name.starts_with("param/")))
      state.tensors.push_back(tensor);
  }
  beginning.has_critic =
      model.critic != nullptr && beginning.has_training_state && holds_critic(checkpoint);
  if (beginning.has_critic) {
    const auto more = model.critic->saved_tensors();
    state.tensors.insert(state.tensors.end(), more.begin(), more.end());
  }
  comm::all_or_none(run.ranks.world, [&] {
    for (const char* name : kCarriedFiles) {
      if (checkpoint.has_file(name) && !data.tokenizer_files().contains(name))
        beginning.files[name] = checkpoint.file(name);
    }
    if (data.chat_template().empty()) carry_chat_template(checkpoint, beginning.files);
    for (const char* key : kCarriedValues) {
      if (const auto value = values.model.find(key); value != values.model.end())
        beginning.carried.model.insert(*value);
    }
    if (kind == RunStart::Kind::resume_run) {
      model.samples->restore(values, where);
    } else {
      check_same_tokenizer(checkpoint, data.stream().first_set().manifest().tokenizer_hash);
    }
    if (!beginning.has_training_state) return;
    check_has_optimizer_state(checkpoint, state);
    // A loss scale that was saved with another precision is not valid here.
    optim::LossScaler unused(false);
    const std::string& precision = run.config.train.precision;
    const bool scaled = values.configured("train.precision").value_or(precision) == precision;
    beginning.progress = load_progress(values, checkpoint.step(), scaled ? model.scaler : unused);
    check_steps(run.start, run.config.train.steps, beginning.progress.step);
    if (kind == RunStart::Kind::state)
      fresh_data = data_mismatch(run.keys, data.stream(), values, where);
    if (!fresh_data.empty()) {
      beginning.progress.next_sample = 0;
    } else if (kind == RunStart::Kind::state) {
      model.samples->restore(values, run.start.checkpoint);
    }
    const std::int64_t done = beginning.progress.step;
    std::int64_t data_began = fresh_data.empty() ? 0 : done;
    if (fresh_data.empty() && values.data_began)
      data_began = number_in(values, &RunValues::data_began, 0, done);
    if (data_began > 0) beginning.carried.data_began = data_began;
    beginning.valid_data_is_same = validates_on_same_data(run, values);
    if (beginning.valid_data_is_same && values.valid_loss && std::isfinite(*values.valid_loss))
      beginning.valid_loss = {done, *values.valid_loss};
    beginning.saved = values;
    if (values.schedule) model.step.schedules().take(*values.schedule);
    if (values.fp8_history) model.transformer.fp8().restore(*values.fp8_history);
  });
  if (!new_adapters) {
    load_converted(checkpoint, state, run.ranks.world);
    model.state.spread(model.mesh);
    model.registry.refresh_weights();
    if (beginning.has_critic) {
      model.critic->state().spread(model.mesh);
      model.critic->registry().refresh_weights();
    }
  }
  log_start(run, data, beginning, checkpoint, values, fresh_data, model.registry.device());
}

}  // namespace

StartState begin(const RunRequest& run, const RunData& data, const FrozenStart& frozen,
                 RunModel& model) {
  comm::Communicator& world = run.ranks.world;
  StartState beginning;
  std::optional<checkpoint::Checkpoint> found;
  const std::vector<std::int64_t> own = checkpoint::list_steps(run.folder.checkpoints(), world);
  if (!own.empty()) {
    found = find_own(run, own.front());
    beginning.own_step = found->step();
  } else if (frozen.start) {
    found = frozen.start->checkpoint;
  }
  beginning.fingerprint = take_fingerprint(world, model.registry.device(), model.layout(run));
  if (!found || creates_adapters(run) || !new_reward_head(model.registry, *found).empty())
    model.registry.initialize(static_cast<std::uint64_t>(run.config.train.seed));
  if (frozen.base)
    load_weights(model.registry, StateOf::frozen, frozen.base->checkpoint, model.mesh, world);
  if (found) load(run, data, *found, model, beginning);
  if (model.critic && !beginning.has_critic)
    load_critic(run, data, frozen.base ? std::optional(frozen.base->checkpoint) : found,
                *model.critic, model.mesh);
  if (run.task.trains_reward_head())
    beginning.carried.model[checkpoint::kHeadValue] = checkpoint::kRewardModelHead;
  if (model.average && !beginning.has_average) model.average->reset();
  model.samples->start_at(beginning.progress.step);
  remove_converted_start(frozen, run);
  put_frozen_hashes(frozen, beginning.carried);
  return beginning;
}

}  // namespace trireme::train
