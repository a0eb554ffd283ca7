/// Generation with matrices in int8 (Transformer::use_int8_weights).

#include <gtest/gtest.h>

#include "generate/answer_all.hpp"
#include "unit/generate/small_model.hpp"

namespace trireme::testing {
namespace {

using namespace generate;

std::vector<std::vector<std::uint32_t>> texts_of(
    const SmallModel& small, const std::vector<std::vector<std::uint32_t>>& prompts) {
  GenerationEngine engine(*small.model, small.tokenizer, {.max_batch = 4, .prompt_tokens = 7});
  std::vector<std::vector<std::uint32_t>> texts;
  for (const Answer& answer : answer_all(engine, greedy_requests(prompts, 5)))
    texts.push_back(ids_of(answer));
  return texts;
}

void use_experts(model::ModelConfig& config) {
  config.moe.num_experts = 4;
  config.moe.num_experts_per_tok = 2;
  config.moe.moe_intermediate_size = 24;
  config.moe.num_shared_experts = 1;
}

class Int8 : public ::testing::TestWithParam<SmallOptions> {};

TEST_P(Int8, EqualsAFullForwardPassWithTheRoundedWeights) {
  const SmallModel small(GetParam());
  const auto prompts = random_prompts(8, 1, 20);
  const at::Tensor before = small.logits_after(prompts[0]);

  small.model->use_int8_weights();

  const at::Tensor difference = (small.logits_after(prompts[0]) - before).abs();
  EXPECT_GT(difference.max().item<double>(), 0) << "other passes compute with the rounded weights";
  EXPECT_LT(difference.mean().item<double>(), 0.1 * before.abs().mean().item<double>());
  const auto texts = texts_of(small, prompts);
  for (std::size_t i = 0; i < prompts.size(); ++i)
    EXPECT_EQ(texts[i], small.greedy_uncached(prompts[i], 5)) << "prompt " << i;
}

TEST_P(Int8, ReadsInt8InsteadOfTheRegistry) {
  SmallModel small(GetParam());
  const auto prompts = random_prompts(4, 1, 20);
  small.model->use_int8_weights();
  const auto expected = texts_of(small, prompts);

  // The embedding is read from the registry, also if it is tied to the head.
  const parallel::ParamId head = small.model->head_weight();
  std::int64_t matrices = 0;
  for (parallel::ParamId id = 0; id < small.registry.size(); ++id) {
    const std::string& name = small.registry.spec(id).name;
    if (!name.ends_with("_proj.weight") && name.find("experts") == std::string::npos) continue;
    small.registry.main(id).zero_();
    ++matrices;
  }
  if (!small.model->config().tie_embeddings) small.registry.main(head).zero_();

  EXPECT_GE(matrices, 2 * 6);
  EXPECT_EQ(texts_of(small, prompts), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Int8,
    ::testing::Values(SmallOptions{}, SmallOptions{.dtype = at::kFloat},
                      SmallOptions{.dtype = at::kFloat, .tie = false, .lora_rank = 3},
                      SmallOptions{.dtype = at::kFloat, .change = use_experts}));

}  // namespace
}  // namespace trireme::testing
