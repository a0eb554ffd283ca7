#include <gtest/gtest.h>

#include <limits>

#include "generate/engine.hpp"
#include "generate/schedule.hpp"
#include "unit/core/scratch.hpp"
#include "unit/generate/small_model.hpp"

namespace trireme::testing {
namespace {

TEST(GenerationEngine, SettingsThatMakeLogitsInfiniteEndTheirRequestAlone) {
  SmallModel small({.tie = false});
  for (ParamId id = 0; id < small.registry.size(); ++id) {
    if (small.registry.spec(id).name == "lm_head.weight") small.registry.weight(id).mul_(1e306);
  }
  GenerationEngine engine(*small.model, small.tokenizer, {});
  Request plain = greedy(random_prompts(1, 200, 200).front(), 3);
  plain.sampling.temperature = 1;
  std::vector<Request> requests(3, plain);
  requests[1].sampling.repetition_penalty = 0.01;
  requests[2].sampling.repetition_penalty = 0.01;
  requests[2].sampling.top_p = 0.9;

  const auto answers = answer_all(engine, requests);

  EXPECT_EQ(answers[0].tokens.size(), 3U);
  for (const std::size_t i : {1, 2}) {
    ASSERT_TRUE(answers[i].error) << i;
    EXPECT_EQ(answers[i].error->kind(), ErrorKind::numeric);
    EXPECT_TRUE(contains(answers[i].error->what(), "not finite"));
    EXPECT_TRUE(answers[i].tokens.empty());
  }
}

TEST(Schedule, AfterAStepThatFailedNothingIsTakenToBeComputed) {
  SmallModel small;
  const EngineConfig config{.max_batch = 2, .prompt_tokens = KvBlocks::kTokens};
  Schedule schedule(config, 64);
  const auto prompt = std::vector<std::uint32_t>(3 * KvBlocks::kTokens, 7);
  for (std::uint64_t id = 1; id <= 2; ++id)
    schedule.add(std::make_unique<LiveText>(
        id, greedy(prompt, 1), [](const Delta&) {}, small.tokenizer));
  const auto computed = [&] {
    std::vector<std::int64_t> all;
    schedule.for_each([&](const LiveText& text) { all.push_back(text.computed); });
    return all;
  };

  ASSERT_EQ(schedule.next_step().size(), 1U);  // the first one's block, which the second shares
  ASSERT_EQ(computed(), (std::vector<std::int64_t>{0, KvBlocks::kTokens}));
  schedule.forget();

  EXPECT_EQ(computed(), (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(schedule.counters().kv_blocks_used, 0);
}

TEST(GenerationEngine, AQueueOfAnyLengthTakesRequests) {
  const SmallModel small;
  const auto ignore = [](const Delta&) {};
  GenerationEngine endless(*small.model, small.tokenizer,
                           {.max_batch = 2, .max_queue = std::numeric_limits<std::int64_t>::max()});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(endless.submit(greedy({1}, 1), ignore));

  GenerationEngine engine(*small.model, small.tokenizer, {.max_batch = 1, .max_queue = 1});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(engine.submit(greedy({1}, 1), ignore));
  EXPECT_FALSE(engine.submit(greedy({1}, 1), ignore));
  EXPECT_TRUE(engine.submit(greedy({1}, 1), ignore, /*follows=*/true));
  while (engine.step()) {
  }
  EXPECT_EQ(engine.counters().generated_tokens, 3);
}

TEST(GenerationEngine, RefusesBudgetsThatNoMachineHas) {
  const SmallModel small;
  const auto refused = [&](const EngineConfig& config) {
    return error_of([&] { GenerationEngine(*small.model, small.tokenizer, config); });
  };
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_TRUE(contains(refused({.kv_cache_mib = kMost}).what(), "--kv-cache-mib 92"));
  EXPECT_TRUE(contains(refused({.kv_cache_mib = -1}).what(), "--kv-cache-mib -1, must be 0"));
  EXPECT_TRUE(contains(refused({.max_batch = kMost}).what(), "--max-batch 92"));
}

TEST(GenerationEngine, RowsOfALongPromptBecomeFewerBesideOthers) {
  const SmallModel small({.dtype = at::kFloat});
  GenerationEngine engine(*small.model, small.tokenizer,
                          {.prompt_tokens_beside = 16, .row_cost_tokens = 50});
  bool long_began = false;
  std::size_t drawn = 0;
  engine.submit(greedy({1, 2}, 100), [&](const Delta& delta) { drawn += delta.tokens.size(); });
  while (drawn < 5) engine.step();
  engine.submit(greedy(random_prompts(1, 200, 200).front(), 1),
                [&](const Delta& delta) { long_began = long_began || !delta.tokens.empty(); });
  int steps = 0;
  for (; !long_began; ++steps) engine.step();
  // 16, 12, 10, 8, .. rows, at the end 3; 13 steps if all had 16.
  EXPECT_GT(steps, 30);
  EXPECT_LT(steps, 50);
}

}  // namespace
}  // namespace trireme::testing
