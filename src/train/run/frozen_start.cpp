#include "train/run/frozen_start.hpp"

#include "checkpoint/hf/lora.hpp"
#include "checkpoint/upkeep/newest.hpp"
#include "checkpoint/upkeep/reshard.hpp"
#include "checkpoint/upkeep/verify.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

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

/// Whole weights to copy. `place`: "" for what the run starts from.
Checkpoint open_source(const RunRequest& run, const std::string& place, const fs::path& kept) {
  Communicator& world = run.ranks.world;
  return all_or_none(world, [&] {
    if (place.empty() && run.start.kind == RunStart::Kind::go_on) {
      fail(
          ErrorKind::data,
          "{} is gone, and with it the weights that this run began from: put it back, or begin anew with --init and another --run",
          kept.string());
    }
    Checkpoint source =
        open_newest_good(place.empty() ? run.config.checkpoint.resume : place, world);
    if (!holds_adapters(source)) return source;
    if (!place.empty() || !run.config.lora.on()) refuse_adapters(source);
    return open_newest_good(base_place(source), world);
  });
}

KeptWeights keep(const RunRequest& run, const std::string& name, const std::string& place) {
  Communicator& world = run.ranks.world;
  const fs::path folder = run.folder.root / name;
  const auto find = [&] {
    return find_newest_good(folder, world, [](std::string_view text) { log::warn(text); });
  };
  auto checkpoint = find();
  if (!checkpoint) {
    const Checkpoint source = open_source(run, place, folder);
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
    Checkpoint found = open_newest_good(run.config.checkpoint.resume, world, /*allow_older=*/true);
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

}  // namespace

FrozenStart keep_frozen(const RunRequest& run) {
  FrozenStart frozen;
  frozen.init_sha256 = init_hash(run);
  if (run.config.lora.on()) frozen.base = keep(run, kBase, "");
  if (const auto need = run.task.frozen(run.config))
    frozen.model = keep(run, need->name, need->checkpoint);
  return frozen;
}

void put_frozen(const FrozenStart& frozen, std::map<std::string, std::string>& values) {
  if (!frozen.init_sha256.empty()) values[kInitWeightsValue] = frozen.init_sha256;
  for (const auto& kept : {frozen.base, frozen.model}) {
    if (kept) values[kept->key] = kept->sha256;
  }
}

}  // namespace trireme
