/// Embeddings are means of hidden states, which do not depend on the other requests of a step.

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "unit/generate/small_model.hpp"

namespace trireme::generate {
namespace {

using testing::random_prompts;
using testing::SmallModel;

Request embedding_of(std::vector<std::uint32_t> prompt) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = 0;
  request.embedding = true;
  return request;
}

/// Runs all requests and returns the embeddings in their order.
std::vector<std::vector<float>> embeddings(GenerationEngine& engine,
                                           const std::vector<Request>& requests) {
  std::vector<std::vector<float>> all(requests.size());
  (void)answer_all(engine, requests, [&](std::size_t index, const Delta& delta, const Answer&) {
    if (!delta.embedding.empty()) all[index] = delta.embedding;
  });
  return all;
}

/// Returns the mean of the hidden states of a forward pass without a KV cache.
std::vector<float> uncached_mean(const SmallModel& small,
                                 const std::vector<std::uint32_t>& prompt) {
  const std::vector<std::int64_t> ids(prompt.begin(), prompt.end());
  const auto length = static_cast<std::int64_t>(ids.size());
  parallel::Microbatch batch;
  batch.tokens = at::tensor(ids, at::kLong).view({1, -1});
  batch.positions = at::arange(length, at::kLong).view({1, -1});
  batch.samples = at::zeros({1}, at::kLong);
  const at::NoGradGuard no_grad;
  const at::Tensor mean = small.model->hidden(batch).select(0, 0).mean(0).to(at::kFloat);
  return {mean.const_data_ptr<float>(), mean.const_data_ptr<float>() + mean.numel()};
}

TEST(Embedding, IsTheMeanOfTheHiddenStatesOfAllTokens) {
  const SmallModel small;
  // The prompts begin with the same 40 tokens, so that other requests could share their blocks.
  auto prompts = random_prompts(6, 41, 90);
  for (auto& prompt : prompts) std::copy_n(prompts[0].begin(), 40, prompt.begin());
  prompts.push_back({5});
  EngineConfig config;
  config.prompt_tokens = 13;
  GenerationEngine engine(*small.model, small.tokenizer, config);
  std::vector<Request> requests;
  for (const auto& prompt : prompts) requests.push_back(embedding_of(prompt));
  (void)answer_all(engine, testing::greedy_requests({prompts[0]}, 2));  // fills the cache

  const auto means = embeddings(engine, requests);

  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<float> expected = uncached_mean(small, prompts[i]);
    ASSERT_EQ(means[i].size(), expected.size()) << i;
    for (std::size_t k = 0; k < expected.size(); ++k)
      EXPECT_NEAR(means[i][k], expected[k], 1e-6) << i << " " << k;
  }
}

TEST(Embedding, HasTheSameBitsWhateverElseRuns) {
  const SmallModel small({.dtype = at::kFloat});
  const auto prompts = random_prompts(6, 60, 120);
  std::vector<Request> requests;
  std::vector<std::vector<float>> alone;
  for (const auto& prompt : prompts) {
    requests.push_back(embedding_of(prompt));
    GenerationEngine engine(*small.model, small.tokenizer, {});
    alone.push_back(embeddings(engine, {requests.back()}).front());
  }
  for (const auto& prompt : prompts) requests.push_back(testing::greedy(prompt, 130));
  EngineConfig config{.kv_cache_mib = 1, .max_batch = 12};
  config.prompt_tokens = 37;
  config.prompt_tokens_while_decoding = 9;
  GenerationEngine engine(*small.model, small.tokenizer, config);

  auto together = embeddings(engine, requests);

  EXPECT_GT(engine.counters().preemptions, 0);
  together.resize(prompts.size());
  EXPECT_EQ(together, alone);
}

TEST(Embedding, RefusesNewTokens) {
  Request request = embedding_of({1});
  request.max_tokens = 1;
  const auto problem = find_problem(request, 10, 10);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->field, "max_tokens");
}

}  // namespace
}  // namespace trireme::generate
