/// Every layout trains as one process does: a covering set by default (every pair of values of two
/// factors), all combinations with TRIREME_TEST_MATRIX=1 (label matrix).

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <set>

#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"
#include "optim/optimizer.hpp"
#include "parallel/context/attention.hpp"
#include "train/verify/verify_layout.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kSteps = 3;
constexpr std::int64_t kPersist = 64;  // elements: norms, and no matrix
constexpr int kMostRanks = 8;
constexpr int kMostRanksByDefault = 4;

/// One value of each factor.
struct Case {
  std::int64_t dp = 1;
  std::int64_t tp = 1;
  std::int64_t cp = 1;
  std::int64_t form = 0;  // of context parallelism
  bool by_work = false;
  std::int64_t zero = 0;  // 4: stage 3 with small parameters whole
  bool sequence = false;
  bool recompute = false;
  std::int64_t accumulation = 1;
  bool sgd = false;  // clipped; else AdamW
  int shape = 0;

  [[nodiscard]] std::array<std::int64_t, 11> values() const {
    return {dp, tp, cp, form, by_work, zero, sequence, recompute, accumulation, sgd, shape};
  }

  [[nodiscard]] int ranks() const { return static_cast<int>(dp * tp * cp); }

  [[nodiscard]] std::string name() const {
    return formatted(
        "dp {} tp {} cp {} {} {} zero {} sequence {} recompute {} accumulation {} {} shape {}", dp,
        tp, cp, kContextForms.at(static_cast<std::size_t>(form)), by_work ? "work" : "zigzag", zero,
        sequence, recompute, accumulation, sgd ? "sgd" : "adamw", shape);
  }
};

/// Tied with normed heads; untied with one key head and dropout; 6 heads that read 2.
ModelConfig shape_of(int shape) {
  ModelConfig model = model_preset(shape == 1 ? "minimind-2" : "tiny");
  model.num_heads = shape == 2 ? 6 : shape == 1 ? 5 : 4;
  model.num_kv_heads = shape == 1 ? 1 : 2;
  model.dropout = shape == 1 ? 0.1 : 0;
  return model;
}

/// Ulysses deals whole heads of a rank of tp.
bool can_be(const Case& one) {
  if (one.cp == 1) return one.form == 0 && !one.by_work;
  if (one.form != 2) return true;
  const std::int64_t heads = shape_of(one.shape).num_heads;
  return heads % (one.tp * one.cp) == 0;
}

std::vector<Case> all_cases(int most_ranks) {
  std::vector<Case> cases;
  const auto add_rest = [&](Case one) {
    for (const bool recompute : {false, true})
      for (const std::int64_t accumulation : {1, 3})
        for (const bool sgd : {false, true})
          for (const int shape : {0, 1, 2}) {
            one.recompute = recompute;
            one.accumulation = accumulation;
            one.sgd = sgd;
            one.shape = shape;
            if (can_be(one)) cases.push_back(one);
          }
  };
  for (const std::int64_t dp : {1, 2, 3, 4, 6, 8})
    for (const std::int64_t tp : {1, 2, 3, 4})
      for (const std::int64_t cp : {1, 2, 3, 4, 8}) {
        if (dp * tp * cp > most_ranks) continue;
        for (const std::int64_t form : {0, 1, 2})
          for (const bool by_work : {false, true})
            for (const std::int64_t zero : {0, 1, 2, 3, 4})
              for (const bool sequence : {false, true}) {
                if ((dp * cp == 1 && zero > 0) || (tp == 1 && sequence)) continue;
                add_rest({dp, tp, cp, form, by_work, zero, sequence});
              }
      }
  return cases;
}

using Pair = std::array<std::int64_t, 4>;  // factor, value, factor, value

std::vector<Pair> pairs_of(const Case& one) {
  const auto values = one.values();
  std::vector<Pair> pairs;
  for (std::size_t a = 0; a < values.size(); ++a)
    for (std::size_t b = a + 1; b < values.size(); ++b)
      pairs.push_back(
          {static_cast<std::int64_t>(a), values[a], static_cast<std::int64_t>(b), values[b]});
  return pairs;
}

/// Greedily: always the case with the most pairs that no case before has.
std::vector<Case> covering_set(const std::vector<Case>& cases) {
  std::set<Pair> missing;
  for (const Case& one : cases)
    for (const Pair& pair : pairs_of(one)) missing.insert(pair);
  std::vector<Case> chosen;
  while (!missing.empty()) {
    const auto news = [&](const Case& one) {
      const auto pairs = pairs_of(one);
      return std::count_if(pairs.begin(), pairs.end(),
                           [&](const Pair& pair) { return missing.contains(pair); });
    };
    const Case& best =
        *std::max_element(cases.begin(), cases.end(),
                          [&](const Case& a, const Case& b) { return news(a) < news(b); });
    for (const Pair& pair : pairs_of(best)) missing.erase(pair);
    chosen.push_back(best);
  }
  return chosen;
}

void expect_equal_to_one_process(const Case& one) {
  RunConfig config;
  config.model = shape_of(one.shape);
  config.parallel.tp = one.tp;
  config.parallel.cp = one.cp;
  config.parallel.cp_form = kContextForms.at(static_cast<std::size_t>(one.form));
  config.parallel.cp_balance = one.by_work ? "work" : "zigzag";
  config.parallel.zero = std::min<std::int64_t>(one.zero, 3);
  config.parallel.zero_persist = one.zero == 4 ? kPersist : 0;
  config.parallel.sequence_parallel = one.sequence;
  if (one.recompute) config.parallel.recompute = "full";
  config.parallel.bucket_mb = 0.01;
  config.train.accumulation = one.accumulation;
  if (one.sgd) {
    config.optim = optimizer_defaults("sgd");
    config.optim.clip_norm = 0.01;  // bites
  }
  run_ranks(one.ranks(), [&](Communicator& world) {
    const LayoutVerdict verdict = verify_layout(world, config, kSteps, at::kCPU);
    if (world.rank() != 0) return;
    EXPECT_TRUE(verdict.equal()) << one.name() << ": loss " << verdict.loss_rel << ", gradients "
                                 << verdict.grad_rel << " (" << verdict.grad_worst << "), norm "
                                 << verdict.norm_rel << ", weights " << verdict.weight_rel
                                 << ", moments " << verdict.moment_rel;
  });
}

TEST(Layouts, EqualOneProcess) {
  const bool matrix = std::getenv("TRIREME_TEST_MATRIX") != nullptr;
  const std::vector<Case> cases =
      matrix ? all_cases(kMostRanks) : covering_set(all_cases(kMostRanksByDefault));
  for (const Case& one : cases) expect_equal_to_one_process(one);
  std::cout << cases.size() << " layouts\n";
}

}  // namespace
}  // namespace trireme
