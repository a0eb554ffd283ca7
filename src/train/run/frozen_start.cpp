#include "train/run/frozen_start.hpp"

#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/hf/lora.hpp"
#include "checkpoint/upkeep/newest.hpp"
#include "checkpoint/upkeep/reshard.hpp"
#include "checkpoint/upkeep/verify.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "train/run/weights_start.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBase = "base";
constexpr std::string_view kWeights = "param/";

std::optional<std::string> value_of(const RunRequest& run, const std::string& key) {
  if (run.start.kind != RunStart::Kind::go_on) return std::nullopt;
  const auto found = run.start.values.find(key);
  return found == run.start.values.end() ? std::nullopt : std::optional(found->second);
}

[[noreturn]] void refuse_adapters(const Checkpoint& checkpoint) {
  fail(
      ErrorKind::usage,
      "{} holds adapters alone (to train them on, give their lora.* keys): `trireme export --checkpoint {} --output DIR` writes the merged model, `trireme import --hf DIR --output RUN` makes a start of it",
      checkpoint.path().string(), checkpoint.path().string());
}

/// What the run starts from: what the command names, else what lies in its own folder (imported).
std::string start_place(const RunRequest& run) {
  return run.config.checkpoint.names_checkpoint() ? run.config.checkpoint.resume
                                                  : run.folder.root.string();
}

/// That the model reads the tokens of the run's data. Throws Error(usage).
void check_reads(const Checkpoint& checkpoint, const FrozenNeed& need, const RunRequest& run,
                 const RunData& data) {
  const TokenSet& set = data.stream().first_set();
  check_same_tokenizer(checkpoint, set.manifest().tokenizer_hash);
  const std::string where = checkpoint.path().string();
  const std::int64_t rows = model_from_values(checkpoint.manifest().values, where).vocab_size;
  const std::int64_t least = need.same_vocabulary ? run.config.model.vocab_size
                                                  : static_cast<std::int64_t>(set.vocab_size());
  if (rows < least || (need.same_vocabulary && rows != least)) {
    fail(ErrorKind::usage, "{} has a vocabulary of {} tokens, must be {}{}", where, rows, least,
         need.same_vocabulary ? ", that of the model which is trained" : " or more");
  }
}

/// `work()`; an error of it names the key that had the checkpoint.
template <class Work>
auto under_key(const FrozenNeed& need, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (need.checkpoint.empty()) throw;
    fail(error.kind(), "{} = {}: {}", need.key, need.checkpoint, error.what());
  }
}

/// Whole weights to copy, into `kept`.
Checkpoint open_source(const RunRequest& run, const RunData& data, const FrozenNeed& need,
                       const fs::path& kept) {
  Communicator& world = run.ranks.world;
  const bool is_start = need.checkpoint.empty();
  return all_or_none(world, [&] {
    if (is_start && run.start.kind == RunStart::Kind::go_on) {
      fail(
          ErrorKind::data,
          "{} is {}, and with it the weights that this run began from: put it back, or begin anew with --init and another --run",
          kept.string(), list_steps(kept).empty() ? "gone" : "damaged");
    }
    return under_key(need, [&] {
      // Of the start the one that the run itself begins from.
      Checkpoint source = open_newest_good(is_start ? start_place(run) : need.checkpoint, world,
                                           /*allow_older=*/is_start);
      if (holds_adapters(source)) {
        if (!is_start || !run.config.lora.on()) refuse_adapters(source);
        source = open_newest_good(base_place(source), world);
      }
      check_reads(source, need, run, data);
      return source;
    });
  });
}

KeptWeights keep(const RunRequest& run, const RunData& data, const FrozenNeed& need) {
  Communicator& world = run.ranks.world;
  const std::string& name = need.name;
  const fs::path folder = run.folder.root / name;
  const auto find = [&] {
    return find_newest_good(folder, world, [](std::string_view text) { log::warn(text); });
  };
  auto checkpoint = find();
  if (!checkpoint) {
    const Checkpoint source = open_source(run, data, need, folder);
    publish_weights(source, folder, world);
    if (world.rank() == 0)
      log::info(formatted("{}: the weights of {}, kept for this run", folder.string(),
                          source.path().string()));
    checkpoint = find();
    TRIREME_ASSERT(checkpoint);
  }
  const std::string key = name + ".weights_sha256";
  const std::string hash = hash_verified(*checkpoint, world, kWeights);
  const auto begun_with = value_of(run, key);
  all_or_none(world, [&] {
    if (begun_with && *begun_with != hash) {
      fail(ErrorKind::data,
           "{} does not hold the weights that this run began with ({}, now {}): put them back",
           folder.string(), *begun_with, hash);
    }
  });
  return {*std::move(checkpoint), key, hash};
}

/// Of what the run started from, as its checkpoints keep it.
std::string init_hash(const RunRequest& run) {
  if (run.start.kind == RunStart::Kind::nothing) return "";
  if (run.start.kind == RunStart::Kind::go_on) return value_of(run, kInitWeightsValue).value_or("");
  Communicator& world = run.ranks.world;
  const Checkpoint start = all_or_none(world, [&] {
    Checkpoint found = open_newest_good(start_place(run), world, /*allow_older=*/true);
    if (!holds_adapters(found)) return found;
    if (!run.config.lora.on()) refuse_adapters(found);
    if (run.task.compares_with_start(run.config)) {
      fail(
          ErrorKind::usage,
          "{} holds adapters, which are trained on: name the model to compare with (dpo.reference)",
          found.path().string());
    }
    return found;
  });
  return hash_tensors(start, world, kWeights);
}

/// The newest checkpoint of `place`, of which only the manifest is read. Throws Error(data).
Checkpoint newest_at(const fs::path& place) {
  const CheckpointPlace found = find_place(place);
  if (found.is_step) return Checkpoint::open(found.path);
  const auto steps = list_steps(found.path);
  if (steps.empty()) fail(ErrorKind::data, "{} holds no checkpoint", place.string());
  return Checkpoint::open(found.path / step_folder_name(steps.front()));
}

/// Nothing if there is none to read.
std::optional<ModelConfig> shape_at(const fs::path& place) {
  try {
    const Checkpoint newest = newest_at(place);
    return model_from_values(newest.manifest().values, newest.path().string());
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

FrozenParameters frozen_parameters(const RunRequest& run) {
  const auto need = run.task.frozen(run.config);
  if (!need) return {};
  const auto of = [](const ModelConfig& model, const std::string& key) {
    return FrozenParameters{model.num_parameters_wide(), model.num_expert_parameters_wide(), key};
  };
  if (need->checkpoint.empty()) return of(run.config.model, "");
  auto shape = shape_at(run.folder.root / need->name);  // of a run that goes on
  if (!shape) shape = shape_at(need->checkpoint);
  if (!shape) return {};
  return of(*shape, need->key);
}

void check_frozen(const RunRequest& run, const RunData& data) {
  const auto need = run.task.frozen(run.config);
  if (!need || need->checkpoint.empty() || shape_at(run.folder.root / need->name)) return;
  under_key(*need, [&] {
    const Checkpoint source = newest_at(need->checkpoint);
    if (holds_adapters(source)) refuse_adapters(source);
    check_reads(source, *need, run, data);
  });
}

FrozenStart keep_frozen(const RunRequest& run, const RunData& data) {
  FrozenStart frozen;
  frozen.init_sha256 = init_hash(run);
  if (run.config.lora.on()) frozen.base = keep(run, data, {.name = kBase});
  if (const auto need = run.task.frozen(run.config)) frozen.model = keep(run, data, *need);
  return frozen;
}

void put_frozen(const FrozenStart& frozen, std::map<std::string, std::string>& values) {
  if (!frozen.init_sha256.empty()) values[kInitWeightsValue] = frozen.init_sha256;
  for (const auto& kept : {frozen.base, frozen.model}) {
    if (kept) values[kept->key] = kept->sha256;
  }
}

}  // namespace trireme
