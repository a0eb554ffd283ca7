#include "train/task/rollout_ranks.hpp"

#include <algorithm>
#include <iterator>
#include <string>

#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/join.hpp"

namespace trireme::train {

std::vector<double> gather_rewards(comm::Communicator& world, std::span<const Rollout> rollouts) {
  std::vector<double> mine;
  for (const Rollout& one : rollouts) mine.push_back(one.reward);
  std::vector<double> all(mine.size() * static_cast<std::size_t>(world.size()));
  world
      .all_gather({.input = mine.data(),
                   .output = all.data(),
                   .count = mine.size(),
                   .dtype = DType::f64,
                   .tag = "rewards"})
      ->wait();
  return all;
}

void publish_rollouts(comm::Communicator& world, const RolloutFile& file,
                      std::span<const Rollout> rollouts) {
  std::string all;
  for (std::size_t first = 0; first < rollouts.size(); first += file.part) {
    std::string lines;
    for (const Rollout& one : rollouts.subspan(first, file.part)) lines += rollout_line(one);
    all += joined(comm::gather_texts(world, lines), "");
  }
  comm::all_or_none(world, [&] {
    if (world.rank() != 0) return;
    std::filesystem::create_directories(file.directory);
    write_file_atomic(file.directory / rollout_file_name(file.step), all);
    if (file.keep > 0) remove_old_rollouts(file.directory, file.step, file.keep);
  });
}

UpdateTotals sum_totals(comm::Communicator& world, const RlConfig& config, const TrainConfig& train,
                        std::int64_t step, std::span<const Rollout> rollouts) {
  const std::int64_t prompts = config.prompts_of_step(train.global_batch);
  UpdateTotals totals{.answers = prompts * config.group, .batches = prompts / train.micro_batch};
  for (const Rollout& one : rollouts) {
    const bool is_masked = one.truncated && config.truncated == "mask";
    totals.targets += one.num_trained();
    totals.trained_tokens += is_masked ? 0 : one.num_trained();
    totals.row_tokens = std::max(totals.row_tokens, std::ssize(one.prompt) + std::ssize(one.ids));
  }
  const auto reduce = [&](std::int64_t& value, comm::ReduceOp op, const char* tag) {
    value = comm::all_reduce_value(world, value, op, tag);
  };
  reduce(totals.targets, comm::ReduceOp::sum, "targets");
  reduce(totals.trained_tokens, comm::ReduceOp::sum, "trained tokens");
  reduce(totals.row_tokens, comm::ReduceOp::max, "row tokens");
  if (totals.targets == 0) {
    fail(ErrorKind::data,
         "{}: no answer of step {} has a token to train. A mask needs at least one 1.",
         config.replay, step);
  }
  return totals;
}

}  // namespace trireme::train
