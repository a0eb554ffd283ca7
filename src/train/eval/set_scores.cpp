#include "train/eval/set_scores.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
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

Head head(Transformer& model, ops::Path path) {
  return head_of(model.registry(), model.head_weight(), model.tensor(), path);
}

/// Adds what the model says of the targets of `batch`, whose row i is scores[i].
void add_scores(Transformer& model, const Batch& batch, const std::vector<double>& bytes,
                ops::Path path, std::span<SequenceScore> scores) {
  const Microbatch micro =
      to_microbatch(batch, model.registry().device(), /*step=*/0, /*training=*/false);
  const TargetRows targets(micro, model.hidden(micro));
  const ops::TokenScores said =
      token_scores(head(model, path), targets.rows, targets.targets, {.want_correct = true});
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

/// The values of all ranks on rank 0, one rank after another.
template <class T>
std::vector<T> gather(Communicator& world, const std::vector<T>& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::string bytes(mine.size() * sizeof(T), '\0');
  if (!mine.empty()) std::memcpy(bytes.data(), mine.data(), bytes.size());
  std::vector<T> all;
  for (const std::string& part : gather_texts(world, bytes)) {
    const std::size_t first = all.size();
    all.resize(first + part.size() / sizeof(T));
    if (!part.empty()) std::memcpy(all.data() + first, part.data(), part.size());
  }
  return all;
}

/// Sums of log p of the endings.
std::vector<double> ending_scores(Transformer& model, std::span<const ContextAndEnding> texts,
                                  ops::Path path) {
  const Batch batch = batch_of_endings(texts, model.config().max_seq_len);
  const Microbatch micro =
      to_microbatch(batch, model.registry().device(), /*step=*/0, /*training=*/false);
  const TargetRows targets(micro, model.hidden(micro));
  const at::Tensor log_probs =
      token_scores(head(model, path), targets.rows, targets.targets).log_probs.to(at::kCPU);
  return sums_of_endings(
      texts, {log_probs.const_data_ptr<double>(), static_cast<std::size_t>(log_probs.numel())});
}

/// The score of one ending.
struct EndingScore {
  std::int64_t item = 0;
  std::int64_t ending = 0;
  double sum = 0;
};

}  // namespace

std::vector<SequenceScore> score_set(Transformer& model, const SampleSet& samples,
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
  std::vector<SequenceScore> all = gather(world, mine);
  std::sort(all.begin(), all.end(),
            [](const SequenceScore& a, const SequenceScore& b) { return a.index < b.index; });
  return all;
}

std::vector<ChoiceResult> score_choices(Transformer& model, const std::vector<ChoiceItem>& items,
                                        const Tokenizer& tokenizer, std::int64_t rows,
                                        ops::Path path, Communicator& world) {
  const auto total = static_cast<std::int64_t>(items.size());
  std::vector<EndingScore> mine;
  all_or_none(world, [&] {
    const std::uint32_t prefix = prefix_id(tokenizer);
    for (std::int64_t first = world.rank() * rows; first < total; first += world.size() * rows) {
      std::vector<ContextAndEnding> texts;
      const std::size_t at = mine.size();
      for (std::int64_t i = first; i < std::min(first + rows, total); ++i) {
        const ChoiceItem& item = items[static_cast<std::size_t>(i)];
        for (std::size_t ending = 0; ending < item.endings.size(); ++ending) {
          texts.push_back(
              encode_pair(tokenizer, prefix, item.context, item.endings[ending], item.where));
          mine.push_back({i, static_cast<std::int64_t>(ending)});
        }
      }
      const std::vector<double> sums = ending_scores(model, texts, path);
      for (std::size_t i = 0; i < sums.size(); ++i) mine[at + i].sum = sums[i];
    }
  });
  const std::vector<EndingScore> all = gather(world, mine);
  std::vector<std::vector<double>> scores;
  for (const ChoiceItem& item : items) scores.emplace_back(item.endings.size());
  for (const EndingScore& one : all)
    scores[static_cast<std::size_t>(one.item)][static_cast<std::size_t>(one.ending)] = one.sum;
  std::vector<ChoiceResult> results;
  if (world.rank() != 0) return results;
  for (std::size_t i = 0; i < items.size(); ++i)
    results.push_back(choose(items[i], std::move(scores[i])));
  return results;
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
  figures.bits_per_byte = bits_per_byte(loss_sum, bytes);
  return figures;
}

}  // namespace trireme
