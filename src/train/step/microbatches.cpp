#include "train/step/microbatches.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/philox.hpp"
#include "ops/upload.hpp"
#include "parallel/context/shard_sequence.hpp"

namespace trireme::train {
namespace {

/// Returns a tensor of element type T with these values. On a GPU, the copies of a step run beside
/// the work that the GPU still has from the step before.
template <class T, class Value>
at::Tensor to_tensor(const std::vector<Value>& values, at::IntArrayRef shape, at::Device device) {
  const auto dtype = c10::CppTypeToScalarType<T>::value;
  at::Tensor tensor =
      at::empty(shape, at::TensorOptions().dtype(dtype).pinned_memory(device.is_cuda()));
  TRIREME_ASSERT(tensor.numel() == static_cast<std::int64_t>(values.size()));
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<T>());
  return ops::upload_beside(tensor, device);
}

/// Finds the tokens with a target.
std::shared_ptr<const parallel::TargetTokens> find_targets(const data::Batch& batch,
                                                           at::Device device) {
  auto found = std::make_shared<parallel::TargetTokens>();
  found->tokens.reserve(static_cast<std::size_t>(batch.num_targets));
  for (std::size_t token = 0; token < batch.targets.size(); ++token) {
    const std::int64_t target = batch.targets[token];
    if (target == data::kIgnoreTarget) continue;
    const bool first = found->tokens.empty();
    found->least = first ? target : std::min(found->least, target);
    found->most = first ? target : std::max(found->most, target);
    found->tokens.push_back(static_cast<std::int64_t>(token));
    if (!batch.sequence_of.empty()) found->sequences.push_back(batch.sequence_of[token]);
  }
  found->index = to_tensor<std::int64_t>(found->tokens, {std::ssize(found->tokens)}, device);
  return found;
}

/// Splits the flat segment bounds 0..B*T into one list per row. Every row starts a segment, so each
/// list starts at 0 and ends at T.
std::vector<std::vector<std::int64_t>> row_bounds(const data::Batch& batch) {
  std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(batch.B));
  for (const std::int32_t bound : batch.segment_bounds) {
    const std::int64_t row = bound / batch.T;
    if (bound > 0 && bound % batch.T == 0)
      rows[static_cast<std::size_t>(row - 1)].push_back(batch.T);
    if (row < batch.B) rows[static_cast<std::size_t>(row)].push_back(bound % batch.T);
  }
  return rows;
}

/// Returns one number per token of a batch of preference pairs, computed from pair index, side and
/// position. It seeds dropout, so that masks are the same on every layout. Rare collisions of two
/// tokens are harmless.
std::vector<std::int64_t> dropout_positions(const data::Batch& batch) {
  std::vector<std::int64_t> places(batch.tokens.size(), 0);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto sequence = static_cast<std::uint64_t>(batch.sequence_of[i]);
    if (batch.sequence_of[i] < 0) continue;
    const auto pair = static_cast<std::uint64_t>(batch.sample_indices[sequence / 2]);
    const auto position = static_cast<std::uint64_t>(batch.positions[i]);
    places[i] = philox4x32(0, 2 * pair + sequence % 2, position)[0];
  }
  return places;
}

void add_pairs(const data::Batch& batch, at::Device device, parallel::Microbatch& result) {
  TRIREME_ASSERT(batch.B == 1 && batch.num_pairs == std::ssize(batch.sample_indices) &&
                 batch.num_pairs == std::ssize(batch.pair_records));
  result.sequence_of = to_tensor<std::int64_t>(batch.sequence_of, {1, batch.T}, device);
  result.num_pairs = batch.num_pairs;
  result.pair_records = batch.pair_records;
  result.pair_keys = batch.pair_keys;
  result.dropout_positions =
      to_tensor<std::int64_t>(dropout_positions(batch), {1, batch.T}, device);
  result.samples = at::zeros({1}, result.dropout_positions.options());
}

at::Tensor policy_tensor(const std::vector<data::PolicyTarget>& targets) {
  at::Tensor result = at::empty({std::ssize(targets), 8}, at::TensorOptions().dtype(at::kDouble));
  double* to = result.mutable_data_ptr<double>();
  for (const data::PolicyTarget& one : targets) {
    for (const double value :
         {one.rollout_logprob, one.old_logprob, one.reference_logprob, one.advantage,
          one.correction, one.weight, one.value, one.value_target})
      *to++ = value;
  }
  return result;
}

void add_padding(const data::Batch& batch, at::Device device, parallel::Microbatch& result) {
  if (std::ranges::all_of(batch.row_lengths, [&](std::int64_t l) { return l == batch.T; })) return;
  const at::Tensor lengths = to_tensor<std::int64_t>(batch.row_lengths, {batch.B, 1}, device);
  result.padding = at::arange(batch.T, lengths.options()).ge(lengths);
}

/// Returns the number of terms of the auxiliary loss in the whole update: sequences or
/// micro-batches.
double update_aux_terms(const data::Batch& batch, const model::MoeConfig& moe) {
  TRIREME_ASSERT(batch.update_samples > 0 && batch.update_batches > 0);
  if (moe.router_aux_loss != "sequence") return static_cast<double>(batch.update_batches);
  const bool has_two = !batch.sequence_of.empty() && !batch.mismatched;  // sequences of a sample
  return static_cast<double>(batch.update_samples * (has_two ? 2 : 1));
}

}  // namespace

std::int64_t num_terms(const data::Batch& batch, objective::LossTerm term) {
  return term == objective::LossTerm::target ? batch.num_targets : batch.num_pairs;
}

std::int64_t update_terms(const data::Batch& batch, objective::LossTerm term) {
  return term == objective::LossTerm::target ? batch.update_targets : batch.update_samples;
}

parallel::Microbatch to_microbatch(const data::Batch& batch, at::Device device, std::int64_t step,
                                   bool training) {
  parallel::Microbatch result;
  const std::array<std::int64_t, 2> shape{batch.B, batch.T};
  result.tokens = to_tensor<std::int64_t>(batch.tokens, shape, device);
  result.targets = to_tensor<std::int64_t>(batch.targets, shape, device);
  result.target_tokens = find_targets(batch, device);
  if (!batch.target_weights.empty())
    result.target_weights = to_tensor<float>(batch.target_weights, shape, device);
  result.positions = to_tensor<std::int64_t>(batch.positions, shape, device);
  if (batch.sequence_of.empty()) {
    result.dropout_positions = at::arange(batch.T, result.positions.options()).expand(shape);
    result.samples = to_tensor<std::int64_t>(batch.sample_indices, {batch.B}, device);
    add_padding(batch, device, result);
  } else {
    add_pairs(batch, device, result);
  }
  if (batch.mismatched) {
    result.mismatched = std::make_shared<parallel::Microbatch>(
        to_microbatch(*batch.mismatched, device, step, /*training=*/false));
  }
  if (!batch.policy_targets.empty()) result.policy = policy_tensor(batch.policy_targets);
  result.bounds = row_bounds(batch);
  result.step = step;
  result.training = training;
  return result;
}

std::vector<parallel::Microbatch> make_microbatches(std::span<const data::Batch> batches,
                                                    at::Device device, std::int64_t step,
                                                    const model::MoeConfig& moe, double scale,
                                                    const parallel::Mesh& mesh) {
  std::vector<parallel::Microbatch> micro_batches;
  for (const data::Batch& batch : batches) {
    parallel::Microbatch whole = to_microbatch(batch, device, step, /*training=*/true);
    if (moe.has_aux_loss()) whole.aux_weight = scale / update_aux_terms(batch, moe);
    micro_batches.push_back(parallel::shard_sequence(std::move(whole), mesh));
  }
  return micro_batches;
}

}  // namespace trireme::train
