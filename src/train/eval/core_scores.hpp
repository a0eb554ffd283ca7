#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/communicator.hpp"
#include "model/transformer.hpp"
#include "text/tokenizer.hpp"
#include "train/eval/core_bundle.hpp"

namespace trireme::train {

/// The result of one item of CORE.
struct CoreItemResult {
  std::vector<double> losses;    // mean of -log p over the scored tokens of each option
  std::int64_t num_targets = 0;  // scored tokens of all options
  std::int64_t num_correct = 0;  // scored tokens that were the most likely token
  std::int64_t choice = 0;       // option with the lowest loss; the first one of equals
  bool is_correct = false;       // language_modeling: all scored tokens were the most likely ones
  bool is_cut = false;           // a prompt was longer than the model allows
};

/// Scores all items of all tasks. Returns them by task and item on rank 0, nothing on other ranks.
/// `rows`: items per batch. Each rank has the whole model. The scores are bitwise equal for any
/// number of ranks. Collective over `world`.
std::vector<std::vector<CoreItemResult>> score_core(model::Transformer& model,
                                                    const std::vector<CoreTask>& tasks,
                                                    const text::Tokenizer& tokenizer,
                                                    std::int64_t rows, ops::Path path,
                                                    comm::Communicator& world);

struct CoreTaskFigures {
  double accuracy = 0;  // share of right items
  double baseline = 0;  // accuracy of random answers
  double centered = 0;  // 0 for random answers, 1 for right answers
};

struct CoreFigures {
  std::vector<CoreTaskFigures> tasks;
  double core = 0;  // mean of the centered accuracies
};

/// Summarizes the results. Each task has at least one item.
CoreFigures summarize(const std::vector<CoreTask>& tasks,
                      const std::vector<std::vector<CoreItemResult>>& results);

}  // namespace trireme::train
