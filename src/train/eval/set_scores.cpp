#include "train/eval/set_scores.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.hpp"
#include "objective/bradley_terry.hpp"
#include "objective/head.hpp"
#include "train/eval/own_batches.hpp"
#include "train/step/microbatches.hpp"

namespace trireme::train {
namespace {

objective::Head head(model::Transformer& model, ops::Path path) {
  return objective::head_of(model.registry(), model.head_weight(), model.tensor(), path);
}

/// Adds the scores of the targets of `batch`. Row i of the batch belongs to scores[i].
void add_scores(model::Transformer& model, const data::Batch& batch,
                const std::vector<std::int64_t>& bytes, ops::Path path,
                std::span<SequenceScore> scores) {
  const parallel::Microbatch micro =
      to_microbatch(batch, model.registry().device(), /*step=*/0, /*training=*/false);
  const objective::TargetRows targets(micro, model.hidden(micro));
  const objective::TokenScores token_results = objective::token_scores(
      head(model, path), targets.rows, targets.targets, {.want_correct = true});
  const at::Tensor index = targets.index.to(at::kCPU);
  const at::Tensor ids = targets.targets.to(at::kCPU);
  const at::Tensor log_probs = token_results.log_probs.to(at::kCPU);
  const at::Tensor correct = token_results.correct.to(at::kCPU);
  for (std::int64_t i = 0; i < index.numel(); ++i) {
    const auto row = static_cast<std::size_t>(index.const_data_ptr<std::int64_t>()[i] / batch.T);
    const auto id = static_cast<std::size_t>(ids.const_data_ptr<std::int64_t>()[i]);
    const double loss = -log_probs.const_data_ptr<double>()[i];
    const std::int64_t text_bytes = id < bytes.size() ? bytes[id] : 0;
    scores[row].loss_sum += loss;
    scores[row].text_loss += text_bytes > 0 ? loss : 0;
    scores[row].target_bytes += static_cast<double>(text_bytes);
    scores[row].num_targets += 1;
    scores[row].num_correct += correct.const_data_ptr<bool>()[i] ? 1 : 0;
  }
}

/// Returns the sum of log p of each ending.
std::vector<double> ending_scores(model::Transformer& model,
                                  std::span<const ContextAndEnding> texts, ops::Path path) {
  const data::Batch batch = batch_of_endings(texts, model.config().max_seq_len);
  const parallel::Microbatch micro =
      to_microbatch(batch, model.registry().device(), /*step=*/0, /*training=*/false);
  const objective::TargetRows targets(micro, model.hidden(micro));
  const at::Tensor log_probs =
      objective::token_scores(head(model, path), targets.rows, targets.targets)
          .log_probs.to(at::kCPU);
  return sums_of_endings(
      texts, {log_probs.const_data_ptr<double>(), static_cast<std::size_t>(log_probs.numel())});
}

void check_set(const data::TokenSet& set, const std::string& folder,
               std::span<const std::string_view> kinds, const text::Tokenizer& tokenizer) {
  data::require_kind(set, kinds, cat("--data ", folder));
  // A model with an unreadable tokenizer accepts the ids of any tokenizer.
  const std::string own = tokenizer.content_hash();
  if (!own.empty() && set.manifest().tokenizer_hash != own)
    fail(ErrorKind::usage,
         "--data {} was packed with another tokenizer than the model's: pack it again with "
         "`trireme-data pack --tokenizer MODEL`",
         folder);
}

/// Returns the number of tokens per sequence, or per side of a preference pair.
std::int64_t checked_length(const data::TokenSet& set, const std::string& folder,
                            std::int64_t seq_len, std::int64_t most) {
  const std::int64_t length = seq_len == 0 ? set.seq_len() : seq_len;
  if (length > most) {
    fail(ErrorKind::usage,
         "{}: sequences have {} tokens, but the model accepts at most {}: give --seq-len", folder,
         length, most);
  }
  return length;
}

struct EndingScore {
  std::int64_t item = 0;
  std::int64_t ending = 0;
  double sum = 0;
};

}  // namespace

ScoredSet::ScoredSet(const std::string& folder, std::span<const std::string_view> kinds,
                     std::int64_t seq_len, const model::Transformer& model,
                     const text::Tokenizer& tokenizer, bool answers_only)
    : set(data::TokenSet::open(folder)),
      samples((check_set(set, folder, kinds, tokenizer),
               data::SampleSet(set, {.seq_len = checked_length(set, folder, seq_len,
                                                               model.config().max_seq_len),
                                     .answers_only = answers_only}))) {}

std::vector<SequenceScore> score_set(model::Transformer& model, const data::SampleSet& samples,
                                     const text::Tokenizer& tokenizer, std::int64_t rows,
                                     ops::Path path, comm::Communicator& world) {
  const data::SampleOrder in_file_order(samples.size(), 0, /*shuffle=*/false);
  const std::vector<std::int64_t> bytes = bytes_of_tokens(tokenizer);
  std::vector<SequenceScore> mine;
  const auto total = static_cast<std::int64_t>(samples.size());
  for_own_batches(world, total, rows, [&](const std::vector<std::int64_t>& numbers) {
    const std::size_t at = mine.size();
    for (const std::int64_t number : numbers) mine.push_back({.index = number});
    add_scores(model, samples.make_batch(numbers, in_file_order), bytes, path,
               std::span(mine).subspan(at));
  });
  std::vector<SequenceScore> all = gather(world, mine);
  std::sort(all.begin(), all.end(),
            [](const SequenceScore& a, const SequenceScore& b) { return a.index < b.index; });
  return all;
}

std::vector<ChoiceResult> score_choices(model::Transformer& model,
                                        const std::vector<ChoiceItem>& items,
                                        const text::Tokenizer& tokenizer, std::int64_t rows,
                                        ops::Path path, comm::Communicator& world) {
  const auto total = static_cast<std::int64_t>(items.size());
  std::vector<EndingScore> mine;
  for_own_batches(world, total, rows, [&](const std::vector<std::int64_t>& numbers) {
    const std::uint32_t prefix = prefix_id(tokenizer);
    std::vector<ContextAndEnding> texts;
    const std::size_t at = mine.size();
    for (const std::int64_t number : numbers) {
      const ChoiceItem& item = items[static_cast<std::size_t>(number)];
      for (std::size_t ending = 0; ending < item.endings.size(); ++ending) {
        texts.push_back(
            encode_pair(tokenizer, prefix, item.context, item.endings[ending], item.where));
        mine.push_back({number, static_cast<std::int64_t>(ending)});
      }
    }
    const std::vector<double> sums = ending_scores(model, texts, path);
    for (std::size_t i = 0; i < sums.size(); ++i) mine[at + i].sum = sums[i];
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

std::vector<objective::PairScore> score_pairs(model::Transformer& model,
                                              const data::SampleSet& pairs, std::int64_t rows,
                                              ops::Path path, comm::Communicator& world) {
  const data::SampleOrder in_file_order(pairs.size(), 0, /*shuffle=*/false);
  std::vector<objective::PairScore> mine;
  const auto total = static_cast<std::int64_t>(pairs.size());
  for_own_batches(world, total, rows, [&](const std::vector<std::int64_t>& numbers) {
    const parallel::Microbatch batch =
        to_microbatch(pairs.make_batch(numbers, in_file_order), model.registry().device(),
                      /*step=*/0, /*training=*/false);
    objective::SequenceScores sums =
        objective::sequence_scores(batch, model.hidden(batch), head(model, path), {});
    if (batch.mismatched) {  // the other sequences of the pairs
      const objective::SequenceScores others = objective::sequence_scores(
          *batch.mismatched, model.hidden(*batch.mismatched), head(model, path), {});
      sums = {sums.sums + others.sums, sums.counts + others.counts};
    }
    const auto scores = objective::pair_scores(batch, sums);
    mine.insert(mine.end(), scores.begin(), scores.end());
  });
  std::vector<objective::PairScore> all = gather(world, mine);
  std::sort(all.begin(), all.end(),
            [](const objective::PairScore& a, const objective::PairScore& b) {
              return a.document < b.document;
            });
  return all;
}

std::vector<PairReward> score_rewards(model::Transformer& model, const at::Tensor& head,
                                      const data::SampleSet& pairs, std::int64_t rows,
                                      comm::Communicator& world) {
  const data::SampleOrder in_file_order(pairs.size(), 0, /*shuffle=*/false);
  std::vector<PairReward> mine;
  const auto total = static_cast<std::int64_t>(pairs.size());
  for_own_batches(world, total, rows, [&](const std::vector<std::int64_t>& numbers) {
    const parallel::Microbatch batch =
        to_microbatch(pairs.make_batch(numbers, in_file_order), model.registry().device(),
                      /*step=*/0, /*training=*/false);
    const at::Tensor rewards = objective::pair_rewards(batch, model.hidden(batch), head);
    for (std::int64_t pair = 0; pair < batch.num_pairs; ++pair) {
      const double* of_pair = rewards.const_data_ptr<double>() + 2 * pair;
      mine.push_back({batch.pair_records[static_cast<std::size_t>(pair)], of_pair[0], of_pair[1]});
    }
  });
  std::vector<PairReward> all = gather(world, mine);
  std::sort(all.begin(), all.end(),
            [](const PairReward& a, const PairReward& b) { return a.document < b.document; });
  return all;
}

RewardFigures summarize(const std::vector<PairReward>& rewards) {
  RewardFigures figures;
  for (const PairReward& one : rewards) {
    figures.accuracy += one.chosen > one.rejected ? 1 : 0;
    figures.margin += one.chosen - one.rejected;
  }
  TRIREME_ASSERT(!rewards.empty());
  figures.num_pairs = std::ssize(rewards);
  figures.accuracy /= static_cast<double>(figures.num_pairs);
  figures.margin /= static_cast<double>(figures.num_pairs);
  return figures;
}

SetFigures summarize(const std::vector<SequenceScore>& scores) {
  double loss_sum = 0;
  double text_loss = 0;
  double bytes = 0;
  SetFigures figures;
  for (const SequenceScore& score : scores) {
    loss_sum += score.loss_sum;
    text_loss += score.text_loss;
    bytes += score.target_bytes;
    figures.num_targets += score.num_targets;
    figures.num_correct += score.num_correct;
  }
  if (figures.num_targets == 0)
    fail(
        ErrorKind::data,
        "the data set has no targets: every token is masked. Check the chat template and the roles in its input");
  figures.loss = loss_sum / static_cast<double>(figures.num_targets);
  figures.perplexity = std::exp(figures.loss);
  figures.bits_per_byte = bits_per_byte(text_loss, bytes);
  return figures;
}

}  // namespace trireme::train
