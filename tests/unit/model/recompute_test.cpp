#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "comm/thread/thread_world.hpp"
#include "device/memory_count.hpp"
#include "model/layer.hpp"
#include "model/transformer.hpp"

namespace trireme::model {
namespace {

constexpr std::int64_t kRows = 2;
constexpr std::int64_t kLength = 36;
constexpr std::int64_t kVocab = 40;

struct Case {
  std::string what;
  const char* preset = "tiny";
  at::ScalarType dtype = at::kFloat;
  ops::Path path = ops::Path::fast;
  double dropout = 0;
  double attention_dropout = 0;
  parallel::ParallelConfig parallel = {};
  bool documents = false;
  LoraConfig lora = {};
};

ModelConfig shape(const Case& c) {
  ModelConfig config = model_preset(c.preset);
  config.hidden_size = 48;
  config.num_layers = 2;
  config.num_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.intermediate_size = 40;
  config.max_seq_len = kLength;
  config.dropout = c.dropout;
  config.attention_dropout = c.attention_dropout;
  resolve(config, kVocab);
  return config;
}

/// Returns a generator for one rank: all threads share LibTorch's own generator.
at::Generator generator(std::uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

parallel::Microbatch batch_of(const Case& c, const parallel::Mesh& mesh) {
  parallel::Microbatch batch;
  batch.tokens = at::randint(kVocab, {kRows, kLength}, generator(3), at::kLong);
  batch.dropout_positions = at::arange(kLength, at::kLong).expand({kRows, kLength}).contiguous();
  batch.positions = batch.dropout_positions;
  batch.samples = at::arange(5, 5 + kRows, at::kLong);
  if (c.documents) batch.bounds = {{0, 9, kLength}, {0, 20, 21, kLength}};
  batch.step = 4;
  batch.training = true;
  batch.targets = batch.tokens;
  return parallel::shard_sequence(batch, mesh);
}

/// A model on this rank, and the results of one micro-batch.
struct Trial {
  Trial(const Case& c, comm::Communicator& world, parallel::Recompute recompute)
      : mesh(world, c.parallel),
        config(shape(c)),
        model(registry, config,
              {c.path,
               recompute,
               7,
               {mesh.group(parallel::Axis::tp), c.parallel.sequence_parallel, c.parallel.tp_chunks},
               parallel::context_group(mesh),
               c.lora}),
        batch(batch_of(c, mesh)) {
    registry.allocate(mesh, {c.dtype, c.dtype == at::kDouble ? at::kDouble : at::kFloat}, at::kCPU);
    model.prepare();
    registry.initialize(11);
    for (parallel::ParamId id = 0; id < registry.size(); ++id)
      if (registry.spec(id).init.kind == parallel::InitDistribution::Kind::zeros)
        registry.main(id).fill_(0.1);
    registry.refresh_weights();
    registry.begin_update(1);
  }

  /// Returns hidden states, then this rank's gradient of each trainable parameter.
  std::vector<at::Tensor> run() {
    StageActivations saved;
    std::vector<at::Tensor> results{model.forward(0, batch, {}, saved)};
    model.backward_final_norm(
        saved, at::randn(results[0].sizes(), generator(4)).to(results[0].scalar_type()));
    model.backward(0, batch, saved, {});
    for (const parallel::ParamId id : trained()) results.push_back(registry.master_grad(id));
    return results;
  }

  [[nodiscard]] std::vector<parallel::ParamId> trained() const {
    std::vector<parallel::ParamId> ids;
    for (parallel::ParamId id = 0; id < registry.size(); ++id)
      if (registry.trained({id})) ids.push_back(id);
    return ids;
  }

  parallel::Mesh mesh;
  ModelConfig config;
  parallel::ParamRegistry registry;
  Transformer model;
  parallel::Microbatch batch;
};

parallel::ParallelConfig split(std::int64_t tp, bool sequence_parallel, std::int64_t cp = 1,
                               const char* form = "ring", std::int64_t chunks = 1) {
  parallel::ParallelConfig config;
  config.tp = tp;
  config.sequence_parallel = sequence_parallel;
  config.cp = cp;
  config.cp_form = form;
  config.tp_chunks = chunks;
  return config;
}

LoraConfig adapters(const char* targets) {
  LoraConfig lora;
  lora.rank = 4;
  lora.targets = targets;
  lora.dropout = 0.2;
  return lora;
}

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.what;
}

class RecomputeCases : public ::testing::TestWithParam<Case> {};

TEST_P(RecomputeCases, EveryFormGivesTheSameBits) {
  const Case& c = GetParam();
  comm::run_ranks(static_cast<int>(c.parallel.tp * c.parallel.cp), [&](comm::Communicator& world) {
    const std::vector<at::Tensor> expected = Trial(c, world, parallel::Recompute::none).run();
    for (const parallel::Recompute recompute :
         {parallel::Recompute::selective, parallel::Recompute::full}) {
      Trial trial(c, world, recompute);
      const std::vector<at::Tensor> actual = trial.run();
      ASSERT_EQ(actual.size(), expected.size());
      EXPECT_TRUE(actual[0].equal(expected[0])) << "hidden states";
      const std::vector<parallel::ParamId> trained = trial.trained();
      for (std::size_t i = 0; i < trained.size(); ++i) {
        EXPECT_GT(expected[i + 1].abs().max().item<double>(), 0);
        EXPECT_TRUE(actual[i + 1].equal(expected[i + 1]))
            << parallel::kRecomputes.at(static_cast<std::size_t>(recompute)) << ", rank "
            << world.rank() << ", " << trial.registry.spec(trained[i]).name;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, RecomputeCases,
    ::testing::Values(
        Case{"fp32"}, Case{"fp32_plain", "minimind-2", at::kFloat, ops::Path::plain},
        Case{"bf16", "tiny", at::kBFloat16}, Case{"fp64", "tiny", at::kDouble},
        Case{"bf16_documents", "tiny", at::kBFloat16, ops::Path::fast, 0, 0, {}, true},
        Case{"dropout", "tiny", at::kFloat, ops::Path::fast, 0.1},
        Case{"attention_dropout_bf16", "minimind-2", at::kBFloat16, ops::Path::fast, 0.1, 0.2},
        Case{"tp", "tiny", at::kFloat, ops::Path::fast, 0.1, 0, split(2, false)},
        Case{"tp_sequence", "tiny", at::kBFloat16, ops::Path::fast, 0.1, 0, split(2, true)},
        Case{"tp_chunks", "tiny", at::kBFloat16, ops::Path::fast, 0.1, 0,
             split(2, true, 1, "ring", 4)},
        Case{"tp_replicated_keys", "tiny", at::kFloat, ops::Path::fast, 0, 0, split(4, true)},
        Case{"cp_ring", "tiny", at::kFloat, ops::Path::fast, 0.1, 0, split(1, false, 2), true},
        Case{"cp_ulysses_tp", "minimind-2", at::kFloat, ops::Path::plain, 0, 0,
             split(2, true, 3, "ulysses")},
        Case{"cp_all_gather", "tiny", at::kBFloat16, ops::Path::fast, 0, 0,
             split(1, false, 2, "all_gather")},
        Case{"adapters",
             "tiny",
             at::kFloat,
             ops::Path::fast,
             0.1,
             0,
             {},
             false,
             adapters("all-linear")},
        Case{"adapters_tp_sequence", "tiny", at::kBFloat16, ops::Path::fast, 0, 0, split(2, true),
             false, adapters("v_proj,o_proj,up_proj")}),
    [](const auto& one) { return one.param.what; });

/// Returns the bytes that a forward pass saves, computed from the shape: for each block, then once.
struct KeptBytes {
  std::int64_t rows;  // tokens in this rank's residual stream
  // Tokens between entering and leaving tensor parallelism: t times as many with sequence
  // parallelism.
  std::int64_t tokens;
  std::int64_t width;    // width of the residual stream
  std::int64_t queries;  // elements per token on this rank
  std::int64_t keys;
  std::int64_t heads;
  std::int64_t mlp;
  std::int64_t element;
  std::int64_t statistic;
  bool has_tp;

  [[nodiscard]] std::int64_t selective() const {
    const std::int64_t stream = 2 * rows * (width * element + statistic);  // x, sum and their norms
    return stream + tokens * (queries + 2 * keys + 2 * mlp) * element;     // qkv, gate and up
  }

  [[nodiscard]] std::int64_t none() const {
    // Backward of the norms gives their results to the matrices again, except with tp.
    const std::int64_t inputs = has_tp ? tokens * 2 * width * element : 0;
    const std::int64_t turned = tokens * (queries + keys) * element;  // q, k; v is part of qkv
    const std::int64_t attended = tokens * (queries * element + heads * 4);  // out, lse
    return selective() + inputs + turned + attended;
  }

  [[nodiscard]] std::int64_t full() const { return rows * width * element; }
};

std::int64_t kept_after_forward(const Case& c, comm::Communicator& world,
                                parallel::Recompute recompute) {
  Trial trial(c, world, recompute);
  const device::MemoryCount count;
  StageActivations saved;
  at::Tensor hidden = trial.model.forward(0, trial.batch, {}, saved);
  hidden.reset();
  return count.live_bytes();
}

TEST(RecomputeMemory, AForwardPassKeepsWhatTheShapesSay) {
  for (const Case& c :
       {Case{"fp32"}, Case{"bf16", "tiny", at::kBFloat16},
        Case{"bf16, tp 2", "tiny", at::kBFloat16, ops::Path::fast, 0, 0, split(2, false)},
        Case{"fp32, tp 2, sequence", "tiny", at::kFloat, ops::Path::fast, 0, 0, split(2, true)},
        Case{"fp32, tp 2, chunks", "tiny", at::kFloat, ops::Path::fast, 0, 0,
             split(2, true, 1, "ring", 4)}}) {
    const ModelConfig config = shape(c);
    const std::int64_t tp = c.parallel.tp;
    const std::int64_t tokens = kRows * kLength;
    const std::int64_t rows = c.parallel.sequence_parallel ? tokens / tp : tokens;
    const std::int64_t element = c.dtype == at::kBFloat16 ? 2 : 4;
    const KeptBytes bytes{rows,
                          tokens,
                          config.hidden_size,
                          config.num_heads * config.head_dim / tp,
                          config.num_kv_heads * config.head_dim / tp,
                          config.num_heads / tp,
                          config.intermediate_size / tp,
                          element,
                          4,
                          tp > 1};
    // The input of the final norm, and its statistic.
    const std::int64_t last = rows * (config.hidden_size * element + 4);
    comm::run_ranks(static_cast<int>(tp), [&](comm::Communicator& world) {
      for (const auto& [recompute, block] : {std::pair{parallel::Recompute::none, bytes.none()},
                                             {parallel::Recompute::selective, bytes.selective()},
                                             {parallel::Recompute::full, bytes.full()}}) {
        EXPECT_EQ(kept_after_forward(c, world, recompute), config.num_layers * block + last)
            << c.what << ", " << parallel::kRecomputes.at(static_cast<std::size_t>(recompute));
      }
    });
  }
}

}  // namespace
}  // namespace trireme::model
