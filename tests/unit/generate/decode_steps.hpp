#pragma once
#include <algorithm>
#include <random>
#include <vector>

#include "generate/decode_graphs.hpp"
#include "unit/generate/small_model.hpp"

namespace trireme::testing {

inline constexpr std::int64_t kBlocks = 64;

/// Sequences of random tokens with blocks in no order, without an engine.
class Sequences {
 public:
  explicit Sequences(const std::vector<std::size_t>& prompts) {
    for (std::int32_t block = 0; block < kBlocks; ++block) free_.push_back(block);
    std::shuffle(free_.begin(), free_.end(), random_);
    for (const std::size_t length : prompts) {
      auto& one = all_.emplace_back();
      for (std::size_t i = 0; i < length; ++i) one.tokens.push_back(draw());
    }
  }

  /// Returns a step of the next `count` tokens of some sequences.
  generate::StepRows step(const std::vector<std::size_t>& which, std::int64_t count) {
    generate::StepRows rows;
    for (const std::size_t index : which) {
      Sequence& one = all_[index];
      const std::int64_t end = one.computed + count;
      while (std::ssize(one.tokens) < end) one.tokens.push_back(draw());
      while (std::ssize(one.blocks) * 16 < end) {
        one.blocks.push_back(free_.back());
        free_.pop_back();
      }
      rows.texts.push_back({std::ssize(rows.tokens), count, one.computed, one.blocks});
      for (; one.computed < end; ++one.computed) {
        const auto at = static_cast<std::size_t>(one.computed);
        rows.kept.push_back(std::ssize(rows.tokens));
        rows.tokens.push_back(one.tokens[at]);
        rows.previous.push_back(at == 0 ? -1 : one.tokens[at - 1]);
        rows.positions.push_back(one.computed);
      }
    }
    return rows;
  }

 private:
  struct Sequence {
    std::vector<std::int64_t> tokens;
    std::vector<std::int32_t> blocks;
    std::int64_t computed = 0;
  };

  std::int64_t draw() { return static_cast<std::int64_t>(random_() % 700); }

  std::mt19937 random_{5};
  std::vector<std::int32_t> free_;
  std::vector<Sequence> all_;
};

/// Returns the numbers of the sequences of step `i`: their number changes, and so does their order.
inline std::vector<std::size_t> some_of(std::size_t count, int i) {
  std::vector<std::size_t> all(count);
  for (std::size_t k = 0; k < count; ++k) all[k] = (k * 2 + static_cast<std::size_t>(i)) % count;
  all.resize(1 + static_cast<std::size_t>(i / 7) % count);
  return all;
}

/// Decoding of some sequences with DecodeGraphs and without.
struct TwoWays {
  double difference = 0;  // the largest, relative to the largest hidden state
  std::int64_t num_steps = 0;
  std::int64_t num_launches = 0;
};

inline TwoWays decode_two_ways(const SmallOptions& options) {
  const SmallModel small(options);
  const model::KvCache eager = small.model->make_cache(kBlocks);
  const model::KvCache cache = small.model->make_cache(kBlocks);
  generate::DecodeGraphs graphs(*small.model, cache);
  const std::vector<std::size_t> prompts{3, 17, 40, 2, 90};
  Sequences sequences(prompts);
  for (std::size_t one = 0; one < prompts.size(); ++one) {
    const auto prompt = sequences.step({one}, static_cast<std::int64_t>(prompts[one]));
    generate::compute_rows(*small.model, prompt, eager, nullptr);
    graphs.compute_rows(prompt);
  }
  TwoWays result;
  for (int i = 0; i < 70; ++i) {
    const generate::StepRows rows = sequences.step(some_of(prompts.size(), i), 1);
    const at::Tensor expected = generate::compute_rows(*small.model, rows, eager, nullptr);
    const at::Tensor found = graphs.compute_rows(rows);
    const double largest = (found - expected).abs().max().item<double>();
    result.difference = std::max(result.difference, largest / expected.abs().max().item<double>());
    ++result.num_steps;
  }
  result.num_launches = graphs.num_launches();
  return result;
}

}  // namespace trireme::testing
