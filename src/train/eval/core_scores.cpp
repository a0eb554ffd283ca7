#include "train/eval/core_scores.hpp"

#include <algorithm>
#include <utility>

#include "objective/head.hpp"
#include "train/eval/core_prompts.hpp"
#include "train/eval/own_batches.hpp"
#include "train/step/microbatches.hpp"

namespace trireme::train {
namespace {

/// The score of one option, as ranks exchange it.
struct OptionScore {
  std::int64_t item = 0;  // number over all tasks
  double loss_sum = 0;    // sum of -log p
  std::int64_t num_targets = 0;
  std::int64_t num_correct = 0;
  std::int64_t is_cut = 0;
};

/// The place of an item.
struct ItemPlace {
  std::size_t task = 0;
  std::size_t index = 0;
};

/// Adds the scores of the endings of `texts` to `scores`, one for each text.
void score_endings(model::Transformer& model, const std::vector<ContextAndEnding>& texts,
                   ops::Path path, std::span<OptionScore> scores) {
  std::vector<ContextAndEnding> scored;
  std::copy_if(texts.begin(), texts.end(), std::back_inserter(scored),
               [](const ContextAndEnding& text) { return !text.ending.empty(); });
  if (scored.empty()) return;
  const data::Batch batch = batch_of_endings(scored, model.config().max_seq_len);
  const parallel::Microbatch micro =
      to_microbatch(batch, model.registry().device(), /*step=*/0, /*training=*/false);
  const objective::TargetRows targets(micro, model.hidden(micro));
  const objective::TokenScores tokens = objective::token_scores(
      objective::head_of(model.registry(), model.head_weight(), model.tensor(), path), targets.rows,
      targets.targets, {.want_correct = true});
  const at::Tensor log_probs = tokens.log_probs.to(at::kCPU);
  const at::Tensor correct = tokens.correct.to(at::kCPU);
  std::int64_t at = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    scores[i].num_targets = std::ssize(texts[i].ending);
    for (const std::int64_t end = at + scores[i].num_targets; at < end; ++at) {
      scores[i].loss_sum -= log_probs.const_data_ptr<double>()[at];
      scores[i].num_correct += correct.const_data_ptr<bool>()[at] ? 1 : 0;
    }
  }
}

/// Joins the options of one item.
CoreItemResult item_result(const CoreTask& task, const CoreItem& item,
                           std::span<const OptionScore> options) {
  CoreItemResult result;
  for (const OptionScore& one : options) {
    result.losses.push_back(one.loss_sum / static_cast<double>(one.num_targets));
    result.num_targets += one.num_targets;
    result.num_correct += one.num_correct;
    result.is_cut = result.is_cut || one.is_cut != 0;
  }
  // An option without scored tokens has the loss NaN, which is not below another loss. Python's
  // min() finds the same option.
  for (std::size_t i = 1; i < result.losses.size(); ++i)
    if (result.losses[i] < result.losses[static_cast<std::size_t>(result.choice)])
      result.choice = static_cast<std::int64_t>(i);
  result.is_correct = task.type == CoreType::language_modeling
                          ? result.num_correct == result.num_targets
                          : result.choice == item.gold;
  return result;
}

}  // namespace

std::vector<std::vector<CoreItemResult>> score_core(model::Transformer& model,
                                                    const std::vector<CoreTask>& tasks,
                                                    const text::Tokenizer& tokenizer,
                                                    std::int64_t rows, ops::Path path,
                                                    comm::Communicator& world) {
  std::vector<ItemPlace> places;
  for (std::size_t task = 0; task < tasks.size(); ++task)
    for (std::size_t index = 0; index < tasks[task].items.size(); ++index)
      places.push_back({task, index});
  std::vector<OptionScore> mine;
  for_own_batches(world, std::ssize(places), rows, [&](const std::vector<std::int64_t>& numbers) {
    const std::uint32_t first_id = prefix_id(tokenizer);
    const std::size_t at = mine.size();
    std::vector<ContextAndEnding> texts;
    for (const std::int64_t number : numbers) {
      const auto [task, index] = places[static_cast<std::size_t>(number)];
      EncodedCoreItem item = encode_core_item(
          tasks[task], index, core_prompts(tasks[task], index, draw_shots(tasks[task], index)),
          tokenizer, first_id, model.config().max_seq_len);
      for (ContextAndEnding& option : item.options) {
        texts.push_back(std::move(option));
        mine.push_back({.item = number, .is_cut = item.is_cut ? 1 : 0});
      }
    }
    score_endings(model, texts, path, std::span(mine).subspan(at));
  });
  std::vector<OptionScore> all = gather(world, mine);
  if (world.rank() != 0) return {};
  std::stable_sort(all.begin(), all.end(),
                   [](const OptionScore& a, const OptionScore& b) { return a.item < b.item; });
  std::vector<std::vector<CoreItemResult>> results(tasks.size());
  std::size_t at = 0;
  for (const auto& [task, index] : places) {
    const CoreItem& item = tasks[task].items[index];
    results[task].push_back(
        item_result(tasks[task], item, std::span(all).subspan(at, item.num_options())));
    at += item.num_options();
  }
  return results;
}

CoreFigures summarize(const std::vector<CoreTask>& tasks,
                      const std::vector<std::vector<CoreItemResult>>& results) {
  CoreFigures figures;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const auto right = std::count_if(results[i].begin(), results[i].end(),
                                     [](const CoreItemResult& one) { return one.is_correct; });
    CoreTaskFigures& task = figures.tasks.emplace_back();
    task.accuracy = static_cast<double>(right) / static_cast<double>(results[i].size());
    task.baseline = 0.01 * tasks[i].baseline;
    task.centered = (task.accuracy - task.baseline) / (1.0 - task.baseline);
    figures.core += task.centered;
  }
  figures.core /= static_cast<double>(tasks.size());
  return figures;
}

}  // namespace trireme::train
