#include "checkpoint/maintenance/newest.hpp"

#include "checkpoint/maintenance/verify.hpp"
#include "comm/agree.hpp"
#include "comm/self/self_communicator.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Opens and checks one checkpoint. Collective; throws the same error on all ranks.
Checkpoint open_good(const fs::path& directory, comm::Communicator& world) {
  Checkpoint checkpoint = Checkpoint::open(directory, world);
  const Damage damage = find_damage({&checkpoint, 1}, world).front();
  if (!damage.empty()) throw Error(ErrorKind::data, damage_text(damage));
  return checkpoint;
}

std::optional<Checkpoint> find_newest_good(const fs::path& directory, comm::Communicator& world,
                                           std::vector<SkippedStep>& skipped) {
  for (const std::int64_t step : list_steps(directory, world)) {
    std::optional<Checkpoint> checkpoint;
    const auto error = comm::capture(
        [&] { checkpoint = open_good(directory / step_directory_name(step), world); });
    if (!error) return checkpoint;
    if (error->kind() != ErrorKind::data) throw Error(*error);
    skipped.push_back({step, error->what()});
  }
  return std::nullopt;
}

/// Returns one line of damage per skipped step.
std::string damage_of(const std::vector<SkippedStep>& skipped, const fs::path& directory) {
  std::string damage;
  for (const SkippedStep& one : skipped) {
    const std::string name = step_directory_name(one.step);
    std::error_code ignored;
    if (!fs::exists(fs::symlink_status(directory / name, ignored)))
      continue;  // a running job has pruned it
    damage += formatted("\n{}: {}", name, one.reason);
  }
  return damage;
}

}  // namespace

CheckpointLocation locate_checkpoints(const fs::path& path, comm::Communicator& world) {
  const std::string text = comm::text_of_first_rank(world, [&] {
    const CheckpointLocation place = locate_checkpoints(path);
    return cat(place.is_step ? 1 : 0, place.path.string());
  });
  return {text.substr(1), text[0] == '1'};
}

std::vector<std::int64_t> list_steps(const fs::path& directory, comm::Communicator& world) {
  const std::string names = comm::text_of_first_rank(world, [&] {
    std::string text;
    for (const std::int64_t step : list_steps(directory)) text += step_directory_name(step);
    return text;
  });
  std::vector<std::int64_t> steps;
  const std::size_t length = step_directory_name(0).size();
  for (std::size_t at = 0; at < names.size(); at += length)
    steps.push_back(step_of_directory_name(names.substr(at, length)));
  return steps;
}

std::optional<Checkpoint> find_newest_good(const fs::path& directory, comm::Communicator& world,
                                           const WarningSink& warn) {
  std::vector<SkippedStep> skipped;
  auto found = find_newest_good(directory, world, skipped);
  for (const SkippedStep& one : skipped) {
    if (world.rank() != 0) break;
    warn(formatted("checkpoint {} is damaged, trying the previous one: {}",
                   step_directory_name(one.step), one.reason));
  }
  return found;
}

std::optional<Checkpoint> find_newest_good(const fs::path& directory, const WarningSink& warn) {
  comm::SelfCommunicator alone;
  return find_newest_good(directory, alone, warn);
}

Checkpoint open_newest_good(const fs::path& place, comm::Communicator& world, bool allow_older) {
  const CheckpointLocation found = locate_checkpoints(place, world);
  if (found.is_step) return Checkpoint::open(found.path, world);
  std::vector<SkippedStep> skipped;
  std::optional<Checkpoint> checkpoint = find_newest_good(found.path, world, skipped);
  comm::on_first_rank(world, [&] {
    const std::string damage = damage_of(skipped, found.path);
    if (!checkpoint)
      fail(ErrorKind::data, "{}: none of its checkpoints is good{}", place.string(), damage);
    if (damage.empty()) return;
    const std::string newest_good = step_directory_name(checkpoint->step());
    if (!allow_older) {
      fail(
          ErrorKind::data,
          "{}: its newest checkpoint is damaged{}\nThe newest good one is {}: give that directory, or --allow-older if the command has this option.",
          place.string(), damage, (found.path / newest_good).string());
    }
    log::warn(formatted("{}: using {}, newer checkpoints are damaged{}", place.string(),
                        newest_good, damage));
  });
  return *std::move(checkpoint);
}

Checkpoint open_newest_good(const fs::path& place, bool allow_older) {
  comm::SelfCommunicator alone;
  return open_newest_good(place, alone, allow_older);
}

}  // namespace trireme::checkpoint
