#include "train/run/frozen_start.hpp"

#include "checkpoint/upkeep/newest.hpp"
#include "checkpoint/upkeep/reshard.hpp"
#include "checkpoint/upkeep/verify.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// Of a checkpoint's values, what a model is read by.
bool describes_model(std::string_view key) {
  return key.starts_with("model.") || key.starts_with("chat.") || key.starts_with("hf.");
}

/// Copies what the task names, or what the run starts from.
void publish(const RunRequest& run, const FrozenNeed& need, const fs::path& folder) {
  Communicator& world = run.ranks.world;
  const bool goes_on = run.start.kind == RunStart::Kind::go_on;
  const std::string place =
      need.checkpoint.empty() ? run.config.checkpoint.resume : need.checkpoint;
  const Checkpoint source = all_or_none(world, [&] {
    if (goes_on && need.checkpoint.empty()) {
      fail(
          ErrorKind::data,
          "{} is gone, and with it the weights that this run began from: put it back, or begin anew with --init and another --run",
          folder.string());
    }
    return open_newest_good(place, world);
  });
  publish_weights(source, folder, describes_model, world);
  if (world.rank() == 0)
    log::info(formatted("{}: the weights of {}, kept for this run", folder.string(),
                        source.path().string()));
}

}  // namespace

std::optional<KeptWeights> keep_frozen(const RunRequest& run) {
  const std::optional<FrozenNeed> need = run.task.frozen();
  if (!need) return std::nullopt;
  Communicator& world = run.ranks.world;
  const fs::path folder = run.folder.root / need->name;
  const auto find = [&] {
    return find_newest_good(folder, world, [](std::string_view text) { log::warn(text); });
  };
  auto checkpoint = find();
  if (!checkpoint) {
    publish(run, *need, folder);
    checkpoint = find();
    TRIREME_ASSERT(checkpoint);
  }
  const std::string key = need->name + ".weights_sha256";
  const std::string hash = hash_tensors(*checkpoint, world, "param/");
  const auto begun_with = run.start.values.find(key);
  if (run.start.kind == RunStart::Kind::go_on && begun_with != run.start.values.end() &&
      begun_with->second != hash) {
    all_or_none(world, [&] {
      fail(ErrorKind::data,
           "{} does not hold the weights that this run began with ({}, now {}): put them back",
           folder.string(), begun_with->second, hash);
    });
  }
  return KeptWeights{*std::move(checkpoint), key, hash};
}

}  // namespace trireme
