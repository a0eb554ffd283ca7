#include "train/eval/set_scores.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <string>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "objective/head.hpp"
#include "train/step/microbatches.hpp"

namespace trireme {
namespace {

/// Bytes of text behind each id.
std::vector<double> bytes_of_tokens(const Tokenizer& tokenizer) {
  std::vector<double> bytes(tokenizer.vocab_size());
  for (std::uint32_t id = 0; id < bytes.size(); ++id)
    bytes[id] =
        tokenizer.is_special(id) ? 0 : static_cast<double>(tokenizer.token_bytes(id).size());
  return bytes;
}

/// Adds what the model says of the targets of `batch`, whose row i is scores[i].
void add_scores(const FrozenModel& model, const Batch& batch, const std::vector<double>& bytes,
                ops::Path path, std::span<SequenceScore> scores) {
  const at::Device device = model.device();
  const Microbatch micro = to_microbatch(batch, device, /*step=*/0, /*training=*/false);
  const TargetRows targets(micro, model.hidden(micro));
  const ops::TokenScores said =
      token_scores(model.head(path), targets.rows, targets.targets, {.want_correct = true});
  const at::Tensor index = targets.index.to(at::kCPU);
  const at::Tensor ids = targets.targets.to(at::kCPU);
  const at::Tensor log_probs = said.log_probs.to(at::kCPU);
  const at::Tensor correct = said.correct.to(at::kCPU);
  for (std::int64_t i = 0; i < index.numel(); ++i) {
    const auto row = static_cast<std::size_t>(index.const_data_ptr<std::int64_t>()[i] / batch.T);
    const auto id = static_cast<std::size_t>(ids.const_data_ptr<std::int64_t>()[i]);
    scores[row].loss_sum -= log_probs.const_data_ptr<double>()[i];
    scores[row].target_bytes += id < bytes.size() ? bytes[id] : 0;
    scores[row].num_targets += 1;
    scores[row].num_correct += correct.const_data_ptr<bool>()[i] ? 1 : 0;
  }
}

/// Those of all ranks, in order, on rank 0.
std::vector<SequenceScore> gather(Communicator& world, const std::vector<SequenceScore>& mine) {
  static_assert(std::is_trivially_copyable_v<SequenceScore>);
  std::string bytes(mine.size() * sizeof(SequenceScore), '\0');
  if (!mine.empty()) std::memcpy(bytes.data(), mine.data(), bytes.size());
  std::vector<SequenceScore> all;
  for (const std::string& part : gather_texts(world, bytes)) {
    const std::size_t first = all.size();
    all.resize(first + part.size() / sizeof(SequenceScore));
    if (!part.empty()) std::memcpy(all.data() + first, part.data(), part.size());
  }
  std::sort(all.begin(), all.end(),
            [](const SequenceScore& a, const SequenceScore& b) { return a.index < b.index; });
  return all;
}

}  // namespace

std::vector<SequenceScore> score_set(const FrozenModel& model, const SampleSet& samples,
                                     const Tokenizer& tokenizer, std::int64_t rows, ops::Path path,
                                     Communicator& world) {
  const auto total = static_cast<std::int64_t>(samples.size());
  const SampleOrder in_file_order(samples.size(), 0, /*shuffle=*/false);
  const std::vector<double> bytes = bytes_of_tokens(tokenizer);
  std::vector<SequenceScore> mine;
  all_or_none(world, [&] {
    for (std::int64_t first = world.rank() * rows; first < total; first += world.size() * rows) {
      std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(rows, total - first)));
      std::iota(indices.begin(), indices.end(), first);
      const std::size_t at = mine.size();
      for (const std::int64_t index : indices) mine.push_back({.index = index});
      add_scores(model, samples.make_batch(indices, in_file_order), bytes, path,
                 std::span(mine).subspan(at));
    }
  });
  return gather(world, mine);
}

SetFigures summarize(const std::vector<SequenceScore>& scores) {
  double loss_sum = 0;
  double bytes = 0;
  SetFigures figures;
  for (const SequenceScore& score : scores) {
    loss_sum += score.loss_sum;
    bytes += score.target_bytes;
    figures.num_targets += score.num_targets;
    figures.num_correct += score.num_correct;
  }
  if (figures.num_targets == 0)
    fail(ErrorKind::data, "the set has nothing to predict: no sequence has a target");
  figures.loss = loss_sum / static_cast<double>(figures.num_targets);
  figures.perplexity = std::exp(figures.loss);
  figures.bits_per_byte = loss_sum / std::numbers::ln2 / bytes;
  return figures;
}

}  // namespace trireme
