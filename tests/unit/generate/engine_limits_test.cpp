#include <gtest/gtest.h>

#include <limits>

#include "generate/engine.hpp"
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

}  // namespace
}  // namespace trireme::testing
