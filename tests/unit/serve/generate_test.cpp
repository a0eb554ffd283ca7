#include "serve/generate.hpp"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "comm/factory.hpp"
#include "support/full_logits.hpp"
#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kLength = 11;
constexpr std::int64_t kVocab = 30;

/// A random model; `preset` gives Qwen3 (tiny) or Llama (minimind-2) shape.
struct SmallModel {
  std::unique_ptr<Communicator> self = make_world("self", {});
  Mesh mesh{*self, {}};
  ParamRegistry registry;
  std::unique_ptr<Transformer> model;

  explicit SmallModel(const char* preset, at::ScalarType dtype = at::kDouble,
                      ops::Path path = ops::Path::plain) {
    at::set_num_threads(1);
    ModelConfig config = model_preset(preset);
    config.hidden_size = 16;
    config.num_layers = 2;
    config.num_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = 4;
    config.intermediate_size = 24;
    config.max_seq_len = 16;
    resolve(config, kVocab);
    model = std::make_unique<Transformer>(registry, config, ModelPart::whole(config),
                                          TransformerOptions{.path = path});
    registry.allocate(mesh, {dtype, dtype}, at::kCPU);
    model->prepare();
    registry.initialize(11);
    for (std::size_t unit = 0; unit < registry.layout().units().size(); ++unit)
      registry.main_part(unit).mul_(8.0);  // far from uniform, so that an error shows
    registry.refresh_weights();
  }
};

Microbatch batch_of(const at::Tensor& tokens, std::int64_t first) {
  Microbatch batch;
  batch.tokens = tokens;
  batch.positions =
      at::arange(first, first + tokens.size(1), at::kLong).expand_as(tokens).contiguous();
  batch.samples = at::zeros({tokens.size(0)}, at::kLong);
  return batch;
}

class CacheEqualsFullForward : public ::testing::TestWithParam<const char*> {};

TEST_P(CacheEqualsFullForward, AtEveryPosition) {
  for (const auto path : {ops::Path::plain, ops::Path::fast}) {
    const bool fp64 = path == ops::Path::plain;  // the fast path is fp32's
    SmallModel small(GetParam(), fp64 ? at::kDouble : at::kFloat, path);
    at::manual_seed(5);  // LibTorch's own seed is another one in every process
    const at::Tensor tokens = at::randint(kVocab, {2, kLength}, at::kLong);
    const at::Tensor full = full_logits(*small.model, batch_of(tokens, 0)).to(at::kFloat);
    // The large weights amplify rounding some hundred times: up to 4e-5 was seen in fp32 over forty
    // seeds, while a wrong position or key changes logits by their own size. fp64: next_logits
    // rounds its result to fp32.
    const double tolerance = (fp64 ? 1e-6 : 5e-4) * full.abs().max().item<double>();
    // A prompt of every length at once, then one token at a time.
    for (const std::int64_t prompt : {std::int64_t{1}, std::int64_t{5}, kLength}) {
      KvCache cache = small.model->make_cache(2, kLength);
      at::Tensor last = small.model->next_logits(batch_of(tokens.narrow(1, 0, prompt), 0), cache);
      for (std::int64_t position = prompt - 1;; ++position) {
        EXPECT_LT((last - full.select(1, position)).abs().max().item<double>(), tolerance)
            << "prompt " << prompt << ", position " << position;
        if (position + 1 == kLength) break;
        last = small.model->next_logits(batch_of(tokens.narrow(1, position + 1, 1), position + 1),
                                        cache);
      }
      EXPECT_EQ(cache.length, kLength);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CacheEqualsFullForward, ::testing::Values("tiny", "minimind-2"));

TEST(Generate, GreedyIsWhatTheFullForwardSays) {
  SmallModel small("tiny");
  const std::vector<std::uint32_t> prompt{3, 7, 1};
  std::vector<std::uint32_t> seen;
  const auto produced =
      generate(*small.model, prompt, {}, {.max_tokens = 6, .sampling = {.temperature = 0}},
               [&](std::uint32_t token) { seen.push_back(token); });

  EXPECT_EQ(produced, seen);
  ASSERT_EQ(produced.size(), 6U);
  std::vector<std::int64_t> text(prompt.begin(), prompt.end());
  for (const std::uint32_t token : produced) {
    const at::Tensor tokens = at::tensor(text, at::kLong).view({1, -1});
    EXPECT_EQ(full_logits(*small.model, batch_of(tokens, 0))
                  .select(1, tokens.size(1) - 1)
                  .argmax()
                  .item<std::int64_t>(),
              token);
    text.push_back(token);
  }
}

TEST(Generate, EndsAtTheEndTokenTheLimitOrTheLongestPosition) {
  SmallModel small("tiny");
  const auto run = [&](const std::vector<std::uint32_t>& ends, std::int64_t max_tokens,
                       std::size_t prompt_length) {
    return generate(*small.model, std::vector<std::uint32_t>(prompt_length, 3), ends,
                    {.max_tokens = max_tokens, .sampling = {.temperature = 0}},
                    [](std::uint32_t) {});
  };
  const auto free = run({}, 5, 3);
  ASSERT_EQ(free.size(), 5U);
  EXPECT_TRUE(run({free[0]}, 5, 3).empty());
  EXPECT_TRUE(run({kVocab, free[0]}, 5, 3).empty());
  EXPECT_EQ(run({}, 1, 3).size(), 1U);
  EXPECT_EQ(run({}, 100, 3).size(),
            14U);  // 16 positions: the last token drawn is never read
}

TEST(Generate, DrawsTheSameForTheSameSeed) {
  SmallModel small("tiny");
  const auto run = [&](std::int64_t seed) {
    return generate(*small.model, {3}, {},
                    {.max_tokens = 12, .sampling = {.temperature = 1, .seed = seed}},
                    [](std::uint32_t) {});
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

}  // namespace
}  // namespace trireme
