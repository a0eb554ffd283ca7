#include "train/eval/reward_model.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "checkpoint/format/model_head.hpp"
#include "checkpoint/hf/hf_model.hpp"
#include "checkpoint/maintenance/newest.hpp"
#include "core/error.hpp"
#include "device/torch_bridge.hpp"
#include "objective/bradley_terry.hpp"

namespace trireme::train {
namespace {

/// Maximum number of tokens of several sequences in one pass.
constexpr std::size_t kPassTokens = 8192;

/// Reads the head in its saved dtype.
at::Tensor read_reward_head(const generate::ModelOptions& options, std::int64_t hidden_size) {
  const std::string name = cat("param/", objective::kRewardHead);
  if (!checkpoint::is_hf_directory(options.checkpoint)) {
    const auto saved = checkpoint::open_newest_good(options.checkpoint, options.allow_older);
    const auto found = saved.manifest().tensors.find(name);
    if (found != saved.manifest().tensors.end()) {
      std::vector<std::byte> bytes = saved.read_logical(name);
      const auto type = device::to_scalar_type(found->second.dtype);
      return at::from_blob(bytes.data(), {1, hidden_size}, type).clone();
    }
  }
  fail(ErrorKind::usage, "{} has no reward head. Give a run or a checkpoint of `trireme reward`.",
       options.checkpoint);
}

generate::ModelOptions with_head(generate::ModelOptions options) {
  options.head = checkpoint::kRewardModelHead;
  return options;
}

void check_sequence(const std::vector<std::uint32_t>& sequence, const model::ModelConfig& config) {
  if (sequence.empty())
    fail(ErrorKind::usage,
         "A sequence for the reward model is empty. It needs at least one token.");
  if (std::ssize(sequence) > config.max_seq_len)
    fail(ErrorKind::usage,
         "A sequence for the reward model has {} tokens. The model accepts at most {}.",
         sequence.size(), config.max_seq_len);
  for (const std::uint32_t id : sequence)
    if (id >= config.vocab_size)
      fail(ErrorKind::usage,
           "A sequence for the reward model has the id {}. Its vocabulary has {} ids.", id,
           config.vocab_size);
}

}  // namespace

RewardModel::RewardModel(const generate::ModelOptions& options, int local_rank, int local_size)
    : model_(generate::load_model(with_head(options), local_rank, local_size)) {
  const at::Tensor& weight = model_->registry.weight(model_->transformer->head_weight());
  head_ = read_reward_head(options, model_->transformer->config().hidden_size)
              .to(weight.device(), weight.scalar_type());
}

void RewardModel::score_pass(std::span<const std::vector<std::uint32_t>> sequences,
                             std::vector<double>& rewards) const {
  const at::NoGradGuard no_grad;
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> ends;
  std::vector<std::int64_t> bounds{0};
  for (const std::vector<std::uint32_t>& sequence : sequences) {
    for (std::size_t i = 0; i < sequence.size(); ++i)
      positions.push_back(static_cast<std::int64_t>(i));
    tokens.insert(tokens.end(), sequence.begin(), sequence.end());
    bounds.push_back(std::ssize(tokens));
    ends.push_back(std::ssize(tokens) - 1);
  }
  const at::Device device = model_->registry.device();
  parallel::Microbatch batch;
  batch.tokens = at::tensor(tokens, at::kLong).unsqueeze(0).to(device);
  batch.positions = at::tensor(positions, at::kLong).unsqueeze(0).to(device);
  batch.bounds = {bounds};
  const at::Tensor hidden = model_->transformer->hidden(batch).squeeze(0);
  const at::Tensor rows = hidden.index_select(0, at::tensor(ends, at::kLong).to(device));
  const at::Tensor scores = objective::rewards_of(rows, head_).to(at::kCPU, at::kDouble);
  const double* first = scores.const_data_ptr<double>();
  rewards.insert(rewards.end(), first, first + scores.numel());
}

std::vector<double> RewardModel::score(
    std::span<const std::vector<std::uint32_t>> sequences) const {
  for (const std::vector<std::uint32_t>& sequence : sequences)
    check_sequence(sequence, model_->transformer->config());
  std::vector<double> rewards;
  for (std::size_t first = 0; first < sequences.size();) {
    std::size_t end = first + 1;
    std::size_t tokens = sequences[first].size();
    while (end < sequences.size() && tokens + sequences[end].size() <= kPassTokens)
      tokens += sequences[end++].size();
    score_pass(sequences.subspan(first, end - first), rewards);
    first = end;
  }
  return rewards;
}

}  // namespace trireme::train
