/// A model on several ranks (as threads) answers like the model on one rank.

#include <gtest/gtest.h>

#include <cmath>

#include "comm/agree.hpp"
#include "comm/thread/thread_world.hpp"
#include "generate/model_ranks.hpp"
#include "model/stages/stages.hpp"
#include "unit/generate/small_model.hpp"

namespace trireme::generate {
namespace {

using testing::ids_of;

struct Layout {
  std::int64_t tp = 1;
  std::int64_t pp = 1;
};

struct RankCase {
  const char* name;
  void (*change)(model::ModelConfig&);
  bool int8 = false;
};

/// One rank's part of a model in fp64. All weights are functions of their name and their position in
/// the whole parameter, so that every layout has the same model.
struct RankModel {
  RankModel(comm::Communicator& world, const Layout& layout, const RankCase& tested)
      : mesh(world, {.tp = layout.tp, .pp = layout.pp}) {
    at::set_num_threads(1);
    model::ModelConfig config = model::model_preset("tiny");
    config.hidden_size = 32;
    config.num_layers = 3;
    config.num_heads = 8;
    config.num_kv_heads = 4;
    config.head_dim = 8;
    config.intermediate_size = 42;  // no multiple of 4 ranks
    config.max_seq_len = 128;
    if (tested.change != nullptr) tested.change(config);
    model::resolve(config, static_cast<std::int64_t>(tokenizer.vocab_size()));
    model::TransformerOptions options;
    options.path = ops::Path::plain;
    options.tensor = {mesh.group(parallel::Axis::tp), false};
    const auto stages = model::balanced_stages(config, layout.pp, config.max_seq_len);
    for (const model::StageRange& stage : stages)
      stage_layers = std::max(stage_layers, stage.end_layer - stage.first_layer);
    const auto stage = static_cast<std::size_t>(mesh.rank(parallel::Axis::pp));
    model = std::make_unique<model::Transformer>(registry, config,
                                                 model::ModelStages{stages[stage]}, options);
    registry.freeze();
    registry.allocate(mesh, {at::kDouble, at::kDouble}, at::kCPU);
    model->prepare();
    for (parallel::ParamId id = 0; id < registry.size(); ++id) fill(id);
    registry.refresh_weights();
    if (tested.int8) model->use_int8_weights();
  }

  void fill(parallel::ParamId id) {
    const parallel::ParamSpec& spec = registry.spec(id);
    std::int64_t count = 1;
    for (const std::int64_t size : spec.shape) count *= size;
    const double scale = spec.shape.size() > 1 ? 0.5 : 0.2;
    double of_name = 0;
    for (const char letter : spec.name) of_name = std::fmod(of_name * 31 + letter, 1009);
    at::Tensor whole = (at::arange(count, at::kDouble) * (1.7 + 0.003 * of_name)).sin() * scale;
    if (spec.name.ends_with("norm.weight")) whole += 1;
    at::Tensor part = whole.view(spec.shape);
    const parallel::Slice& slice = registry.layout().param(id).slice;
    for (std::size_t dim = 0; dim < slice.offset.size(); ++dim)
      part = part.narrow(static_cast<std::int64_t>(dim), slice.offset[dim], slice.extent[dim]);
    registry.main(id).copy_(part);
  }

  text::Tokenizer tokenizer = text::samples::small_tokenizer();
  parallel::Mesh mesh;
  parallel::ParamRegistry registry;
  std::unique_ptr<model::Transformer> model;
  std::int64_t stage_layers = 0;

  [[nodiscard]] comm::Communicator* pipeline() const {
    return mesh.size(parallel::Axis::pp) > 1 ? &mesh.group(parallel::Axis::pp) : nullptr;
  }
};

struct Results {
  std::vector<Answer> answers;
  std::vector<float> embedding;
  std::int64_t kv_blocks = 0;
};

/// Returns what rank 0 answers to prompts with different lengths, and one embedding.
Results results_of(const Layout& layout, const RankCase& tested) {
  Results results;
  const auto ranks = static_cast<int>(layout.tp * layout.pp);
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    RankModel part(world, layout, tested);
    if (world.rank() != 0) {
      EXPECT_EQ(follow(*part.model, world, part.pipeline()), 0);
      return;
    }
    ModelRanks others(world, part.pipeline(), part.stage_layers);
    (void)others.lead([&] {
      EngineConfig config{.kv_cache_mib = 1, .max_batch = 4, .prompt_tokens = 9};
      GenerationEngine engine(*part.model, part.tokenizer, config, ranks > 1 ? &others : nullptr);
      results.kv_blocks = engine.counters().kv_blocks_total;
      std::vector<Request> requests;
      for (const auto& prompt : testing::random_prompts(5, 1, 40)) {
        requests.push_back(testing::greedy(prompt, 12));
        requests.back().top_logprobs = 3;
        requests.back().ignore_eos = true;
      }
      requests[1].sampling = {.temperature = 1, .seed = 3};
      requests[2].prompt_logprobs = true;
      Request mean;
      mean.prompt = requests[0].prompt;
      mean.max_tokens = 0;
      mean.embedding = true;
      requests.push_back(mean);
      results.answers =
          answer_all(engine, requests, [&](std::size_t, const Delta& delta, const Answer&) {
            if (!delta.embedding.empty()) results.embedding = delta.embedding;
          });
      return 0;
    });
  });
  return results;
}

void expect_equal(const Results& split, const Results& whole) {
  ASSERT_EQ(split.answers.size(), whole.answers.size());
  for (std::size_t i = 0; i < whole.answers.size(); ++i) {
    ASSERT_EQ(ids_of(split.answers[i]), ids_of(whole.answers[i])) << i;
    for (const auto tokens : {&Answer::tokens, &Answer::prompt}) {
      const auto& expected = whole.answers[i].*tokens;
      const auto& actual = split.answers[i].*tokens;
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t k = 0; k < expected.size(); ++k) {
        if (!expected[k].logprob) continue;
        // 1e-5: log-probabilities are rounded to fp32.
        EXPECT_NEAR(*actual[k].logprob, *expected[k].logprob, 1e-5) << i << " " << k;
      }
    }
  }
  ASSERT_EQ(split.embedding.size(), whole.embedding.size());
  for (std::size_t k = 0; k < whole.embedding.size(); ++k)
    EXPECT_NEAR(split.embedding[k], whole.embedding[k], 1e-6) << k;
}

class SeveralRanks : public ::testing::TestWithParam<RankCase> {};

TEST_P(SeveralRanks, AnswerLikeOne) {
  const Results whole = results_of({}, GetParam());
  ASSERT_FALSE(whole.embedding.empty());
  for (const Layout& layout : {Layout{2, 1}, {4, 1}, {1, 3}, {2, 2}}) {
    SCOPED_TRACE(formatted("tp {}, pp {}", layout.tp, layout.pp));
    const Results split = results_of(layout, GetParam());
    expect_equal(split, whole);
    // A rank has only its key heads and layers, so the same memory holds more blocks. With two
    // stages, a rank has two of the three layers.
    const std::int64_t of_layers = layout.pp == 1 ? 6 : layout.pp == 2 ? 9 : 18;
    EXPECT_NEAR(static_cast<double>(split.kv_blocks),
                static_cast<double>(layout.tp * whole.kv_blocks * of_layers) / 6.0,
                static_cast<double>(layout.tp * layout.pp));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SeveralRanks,
                         ::testing::Values(RankCase{"Qwen3", nullptr},
                                           RankCase{"Int8", nullptr, true},
                                           RankCase{"UntiedWithBiasesAndPostNorms",
                                                    [](model::ModelConfig& c) {
                                                      c.tie_embeddings = false;
                                                      c.qkv_bias = c.attention_output_bias =
                                                          c.mlp_bias = true;
                                                      c.post_norms = true;
                                                      c.qk_norm = false;
                                                      c.embedding_scale = 2;
                                                    }},
                                           RankCase{"ExpertsAndWindow",
                                                    [](model::ModelConfig& c) {
                                                      c.moe.num_experts = 4;
                                                      c.moe.num_experts_per_tok = 2;
                                                      c.moe.moe_intermediate_size = 20;
                                                      c.moe.num_shared_experts = 1;
                                                      c.sliding_window = 12;
                                                    }},
                                           RankCase{"UntiedInt8Experts",
                                                    [](model::ModelConfig& c) {
                                                      c.tie_embeddings = false;
                                                      c.moe.num_experts = 4;
                                                      c.moe.num_experts_per_tok = 2;
                                                      c.moe.moe_intermediate_size = 20;
                                                      c.moe.num_shared_experts = 1;
                                                    },
                                                    true}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(ModelRanks, AnErrorOfRank0EndsTheOthersWithItsExitCode) {
  std::vector<int> codes(2, -1);
  EXPECT_THROW(comm::run_ranks(2,
                               [&](comm::Communicator& world) {
                                 const RankModel part(world, {2, 1}, {});
                                 if (world.rank() != 0) {
                                   codes[1] = follow(*part.model, world);
                                   return;
                                 }
                                 (void)ModelRanks(world).lead(
                                     []() -> int { fail(ErrorKind::data, "a prompt is wrong"); });
                               }),
               comm::AgreedError);
  EXPECT_EQ(codes[1], exit_code(ErrorKind::data));
}

}  // namespace
}  // namespace trireme::generate
