#include "train/task/rollout_ranks.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/join.hpp"

namespace trireme::train {

RolloutRanks::RolloutRanks(comm::Communicator& world, const parallel::Mesh& mesh)
    : world_(world),
      data_rank_(mesh.rank(parallel::Axis::dp)),
      data_ranks_(mesh.size(parallel::Axis::dp)) {
  if (data_ranks_ < world.size()) group_ = world.split(data_rank_, world.rank(), "rollouts");
}

AnswerRange RolloutRanks::share(std::size_t answers) const {
  if (group_ == nullptr) return {0, answers};
  const auto rank = static_cast<std::size_t>(group_->rank());
  const auto size = static_cast<std::size_t>(group_->size());
  const std::size_t first = answers * rank / size;
  return {first, answers * (rank + 1) / size - first};
}

std::vector<Rollout> RolloutRanks::exchange(std::vector<Rollout> own, std::int64_t num_ids) const {
  if (group_ == nullptr) return own;
  std::string lines;
  for (const Rollout& one : own) lines += rollout_line(one);
  const std::string all = joined(comm::gather_texts(*group_, lines), "");
  return rollouts_of_lines(comm::broadcast_text(*group_, all), num_ids, "answers of another rank");
}

void RolloutRanks::add_up(const at::Tensor& values) const {
  if (group_ == nullptr || values.numel() == 0) return;
  double* const data = values.mutable_data_ptr<double>();
  group_
      ->all_reduce({.input = data,
                    .output = data,
                    .count = static_cast<std::size_t>(values.numel()),
                    .dtype = DType::f64,
                    .op = comm::ReduceOp::sum,
                    .tag = "values of answers"})
      ->wait();
}

double RolloutRanks::sum_of_groups(double value, const char* tag) const {
  return comm::all_reduce_value(world_, is_first() ? value : 0, comm::ReduceOp::sum, tag);
}

std::vector<double> RolloutRanks::gather_rewards(std::span<const Rollout> rollouts) const {
  std::vector<double> mine;
  for (const Rollout& one : rollouts) mine.push_back(one.reward);
  std::vector<double> all(mine.size() * static_cast<std::size_t>(world_.size()));
  world_
      .all_gather({.input = mine.data(),
                   .output = all.data(),
                   .count = mine.size(),
                   .dtype = DType::f64,
                   .tag = "rewards"})
      ->wait();
  const std::vector<std::int32_t> counts = comm::all_gather_value(
      world_, static_cast<std::int32_t>(is_first() ? 1 : 0), "ranks that count answers");
  std::vector<double> rewards;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(rank * mine.size());
    if (counts[rank] == 1) rewards.insert(rewards.end(), first, first + std::ssize(mine));
  }
  return rewards;
}

void publish_rollouts(const RolloutRanks& ranks, const RolloutFile& file,
                      std::span<const Rollout> rollouts) {
  comm::Communicator& world = ranks.world();
  std::string all;
  for (std::size_t first = 0; first < rollouts.size(); first += file.part) {
    std::string lines;
    if (ranks.is_first())
      for (const Rollout& one : rollouts.subspan(first, file.part)) lines += rollout_line(one);
    all += joined(comm::gather_texts(world, lines), "");
  }
  comm::all_or_none(world, [&] {
    if (world.rank() != 0) return;
    std::filesystem::create_directories(file.directory);
    write_file_atomic(file.directory / rollout_file_name(file.step), all);
  });
}

std::int64_t row_tokens_of(const parallel::ParallelConfig& parallel,
                           std::span<const Rollout> rollouts) {
  std::int64_t tokens = 0;
  for (const Rollout& one : rollouts)
    tokens = std::max(tokens, std::ssize(one.prompt) + std::ssize(one.ids));
  const std::int64_t multiple =
      (parallel.cp > 1 ? 2 * parallel.cp : 1) * (parallel.sequence_parallel ? parallel.tp : 1);
  return (tokens + multiple - 1) / multiple * multiple;
}

UpdateTotals sum_totals(const RolloutRanks& ranks, const RlConfig& config,
                        const RunConfig& run_config, std::int64_t step,
                        std::span<const Rollout> rollouts) {
  const std::int64_t prompts = config.prompts_of_step(run_config.train.global_batch);
  UpdateTotals totals{.answers = prompts * config.group,
                      .batches = prompts / run_config.train.micro_batch};
  for (const Rollout& one : rollouts) {
    if (!ranks.is_first()) continue;
    const bool is_masked = one.truncated && config.truncated == "mask";
    totals.targets += one.num_trained();
    totals.trained_tokens += is_masked ? 0 : one.num_trained();
  }
  const auto reduce = [&](std::int64_t& value, const char* tag) {
    value = comm::all_reduce_value(ranks.world(), value, comm::ReduceOp::sum, tag);
  };
  reduce(totals.targets, "targets");
  reduce(totals.trained_tokens, "trained tokens");
  if (totals.targets == 0) {
    fail(ErrorKind::data,
         "{}: no answer of step {} has a token to train. A mask needs at least one 1.",
         config.replay, step);
  }
  return totals;
}

}  // namespace trireme::train
