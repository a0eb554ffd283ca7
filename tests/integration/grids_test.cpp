/// Compares grids of all axes with one process; ranks are threads. Runs the covering set by
/// default, and with TRIREME_TEST_MATRIX=K/N part K of N of all cases (label matrix).

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>

#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"
#include "model/residual_terms.hpp"
#include "pipeline/named.hpp"
#include "pipeline/schedule_file.hpp"
#include "support/layouts/grid_cases.hpp"
#include "support/layouts/layout_cases.hpp"
#include "train/verify/trial_model.hpp"
#include "train/verify/verify_layout.hpp"

namespace trireme::testing {
namespace {

train::LayoutComparison compare_with_one_process(const train::RunConfig& config, int ranks,
                                                 std::int64_t steps = 2) {
  train::LayoutComparison comparison;
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    at::set_num_threads(1);
    const train::LayoutComparison one = train::verify_layout(world, config, steps, at::kCPU);
    if (world.rank() == 0) comparison = one;
  });
  return comparison;
}

TEST(Grids, EqualOneProcess) {
  const std::vector<GridCase> all = all_grid_cases();
  std::vector<GridCase> cases = is_matrix_run() ? all : covering_cases(all);
  if (is_matrix_run()) {
    const auto [part, parts] = matrix_part();
    std::erase_if(cases, [=](const GridCase& one) { return one.number % parts != part; });
  }
  double worst = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(name_of(cases[i]));
    const train::LayoutComparison comparison =
        compare_with_one_process(config_of(cases[i]), cases[i].ranks());
    worst = std::max({worst, comparison.grad_rel, comparison.weight_rel, comparison.loss_rel});
    EXPECT_TRUE(comparison.equal())
        << "gradients " << comparison.grad_rel << " (" << comparison.grad_worst << "), weights "
        << comparison.weight_rel << ", norm " << comparison.norm_rel << ", loss "
        << comparison.loss_rel;
    EXPECT_EQ(comparison.audit, "");
    if ((i + 1) % 100 == 0) std::cout << i + 1 << " of " << cases.size() << " runs" << std::endl;
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  std::cout << cases.size() << " runs in " << spent.count() << " s, largest distance " << worst
            << '\n';
}

/// Options of a model, each with what it changes in the registry, the attention plan or the costs.
struct OptionsCase {
  const char* name;
  void (*change)(model::ModelConfig& model);
};

const OptionsCase kOptions[] = {
    {"biases",
     [](model::ModelConfig& model) {
       model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
       model.qk_norm = false;
       model.rotary_dim = 2;
     }},
    {"windows and norms",
     [](model::ModelConfig& model) {
       model.sliding_window = 3;
       model.full_attention_layers = "1";
       model.local_rope_theta = 100;
       model.post_norms = true;
       model.embedding_scale = 3.5;
       model.attention_scale_dim = 9;
       model.no_rope_layers = "1";
     }},
    {"norms of outputs only, and over all heads",
     [](model::ModelConfig& model) {
       model.pre_norms = false;
       model.post_norms = model.qk_norm_whole = true;
       model.qkv_bias = true;
     }},
    {"LayerNorm, plain MLP and learned positions",
     [](model::ModelConfig& model) {
       model.norm = "layer";
       model.mlp = "plain";
       model.position = "learned";
       model.activation = "gelu_tanh";
       model.qk_norm = false;  // then a bias of keys without rotation has the gradient 0
       model.attention_output_bias = model.mlp_bias = true;
     }},
    {"parallel residual with exact GELU",
     [](model::ModelConfig& model) {
       model.norm = "layer";
       model.mlp = "plain";
       model.parallel_residual = true;
       model.activation = "gelu";
       model.qk_norm = model.tie_embeddings = false;
       model.rotary_dim = 2;
     }},
    {"soft-caps",
     [](model::ModelConfig& model) {
       model.attention_softcap = 0.05;
       model.logit_softcap = 0.1;
       model.tie_embeddings = false;
     }},
    {"norms without weights and value embeddings",
     [](model::ModelConfig& model) {
       model.norm_gain = false;
       model.embed_norm = true;
       model.qk_scale = 1.2;
       model.init = "uniform";
       model.value_embeddings = "alternate";
       model.window_pattern = "SL";
       model.num_layers = 3;
     }},
    {"smear",
     [](model::ModelConfig& model) {
       model.smear = true;
       model.tie_embeddings = false;
       model.softcap = 2;
     }},
    {"residual terms",
     [](model::ModelConfig& model) {
       model.residual_scalars = model.skips = model.backout = model.value_residual = true;
       model.smear = model.embed_norm = true;
       model.norm_eps = 0.1;  // backout of the last of 2 layers would only scale the norm's input
       model.init = "uniform";
       model.value_embeddings = "0";
     }},
    {"LayerNorm and learned positions with residual terms",
     [](model::ModelConfig& model) {
       model.norm = "layer";
       model.position = "learned";
       model.embed_norm = model.residual_scalars = model.skips = model.backout = true;
       model.norm_eps = 0.1;  // like in the row of residual terms
       model.value_embeddings = "0";
     }},
    {"parallel residual without weights of norms",
     [](model::ModelConfig& model) {
       model.parallel_residual = model.smear = true;
       model.mlp = "plain";
       model.norm_gain = model.tie_embeddings = false;
     }},
    {"experts with bias",
     [](model::ModelConfig& model) {
       model.qkv_bias = model.post_norms = true;
       model.qk_norm = false;
       model.moe.num_experts = 4;
     }},
};

TEST(Grids, ModelOptionsEqualOneProcess) {
  struct Layout {
    int ranks;
    void (*change)(parallel::ParallelConfig& parallel);
  };

  const Layout layouts[] = {{2, [](parallel::ParallelConfig& parallel) { parallel.tp = 2; }},
                            {2,
                             [](parallel::ParallelConfig& parallel) {
                               parallel.tp = 2;
                               parallel.sequence_parallel = true;
                               parallel.recompute = "selective";
                             }},
                            {4,
                             [](parallel::ParallelConfig& parallel) {
                               parallel.tp = 4;  // two ranks hold the same key head
                               parallel.sequence_parallel = true;
                             }},
                            {2, [](parallel::ParallelConfig& parallel) { parallel.pp = 2; }},
                            {2, [](parallel::ParallelConfig& parallel) { parallel.zero = 3; }},
                            {2, [](parallel::ParallelConfig& parallel) {
                               parallel.cp = 2;
                               parallel.zero = 1;
                               parallel.recompute = "full";
                             }}};
  for (const OptionsCase& options : kOptions) {
    for (std::size_t i = 0; i < std::size(layouts); ++i) {
      SCOPED_TRACE(formatted("{}, layout {}", options.name, i));
      train::RunConfig config;
      config.model = model::model_preset("tiny");
      config.model.num_heads = 4;
      config.model.num_kv_heads = 2;
      options.change(config.model);
      layouts[i].change(config.parallel);
      if (config.parallel.pp > 1 && model::has_residual_terms(config.model)) continue;
      const train::LayoutComparison comparison =
          compare_with_one_process(config, layouts[i].ranks, 3);
      EXPECT_LE(std::max({comparison.grad_rel, comparison.weight_rel, comparison.loss_rel,
                          comparison.norm_rel}),
                1e-11)  // three updates of AdamW; 2e-12 at most
          << comparison.grad_worst;
      EXPECT_EQ(comparison.audit, "");
    }
  }
}

/// The formulas cover the saved activations of fused kernels only, so they need fp32.
TEST(Grids, TheAuditCountsTheActivationsOfModelOptionsInFp32) {
  for (const OptionsCase& options : kOptions) {
    for (const char* recompute : {"none", "selective", "full"}) {
      // one rank, tp, tp with sequence parallelism, LoRA of attention or of the MLP
      for (const int layout : {0, 1, 2, 3, 4}) {
        const std::string name = formatted("{}, {}, layout {}", options.name, recompute, layout);
        train::TrialPlan plan;
        plan.model = model::model_preset("tiny");
        plan.model.num_layers = 2;
        options.change(plan.model);
        model::resolve(plan.model, 61);
        plan.parallel.recompute = recompute;
        plan.parallel.tp = layout == 1 || layout == 2 ? 2 : 1;
        plan.parallel.sequence_parallel = layout == 2;
        if (layout > 2) plan.lora.rank = 2;
        plan.lora.targets = layout == 3 || plan.model.moe.on() ? "q_proj" : "gate_proj";
        plan.dtypes = {at::kFloat, at::kFloat};
        plan.path = ops::Path::fast;
        plan.steps = 1;
        plan.audit = true;
        plan.batches = [](int, std::int64_t) {
          data::Batch batch = train::make_rows({1, 2}, 16, 61);
          batch.update_samples = batch.B;
          batch.update_batches = 1;
          return std::vector<data::Batch>{std::move(batch)};
        };
        plan.targets = [&plan](std::int64_t) { return plan.batches(0, 0).front().num_targets; };
        comm::run_ranks(static_cast<int>(plan.parallel.tp), [&](comm::Communicator& world) {
          at::set_num_threads(1);
          const train::TrialTrace trace = train::run_trial(world, plan);
          EXPECT_TRUE(world.rank() != 0 || trace.audit.empty()) << name << ": " << trace.audit;
        });
      }
    }
  }
}

TEST(Grids, HaveEveryPairOfFactors) {
  const std::vector<GridCase> all = all_grid_cases();
  EXPECT_EQ(all.size(), 2780U);
  EXPECT_LE(covering_cases(all).size(), 70U);
}

// A cancelled update leaves no pending message: neither the exit nor the next update waits for one.
TEST(Pipeline, AnUpdateMayBeGivenUp) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    at::set_num_threads(1);
    train::TrialShape shape;
    shape.parallel.pp = 2;
    shape.model = train::small_model_like(model::model_preset("tiny"), shape.parallel);
    train::TrialModel trial(world, shape);
    bool gives_up = true;
    trial.step.cancel_before([&](std::int64_t i, std::int64_t n) {
      EXPECT_EQ(i, 0);
      EXPECT_EQ(n, 3);
      return gives_up;
    });
    std::vector<data::Batch> batches;
    for (std::int64_t i = 0; i < 3; ++i)
      batches.push_back(train::make_rows({i}, shape.model.max_seq_len, shape.model.vocab_size));
    EXPECT_TRUE(trial.step.run(batches, 10, 1, 1, 1e-3).cancelled);
    gives_up = false;
    EXPECT_FALSE(trial.step.run(batches, 10, 1, 1, 1e-3).cancelled);
    gives_up = true;
    EXPECT_TRUE(trial.step.run(batches, 10, 2, 2, 1e-3).cancelled);
  });
}

TEST(Pipeline, StagesMayBeSaid) {
  train::RunConfig config;
  config.model = model::model_preset("tiny");
  config.model.num_layers = 6;
  config.parallel.pp = 3;
  config.parallel.stages = "E1|4|1H";
  config.train.accumulation = 4;
  const train::LayoutComparison comparison = compare_with_one_process(config, 3);
  EXPECT_TRUE(comparison.equal()) << comparison.grad_rel;
  EXPECT_EQ(comparison.audit, "");
}

/// Trains in fp16 with 4 experts on `ranks`. `poison` makes a weight infinite in the first of two
/// updates, on the ranks that own the weight.
void expect_all_skip(const parallel::ParallelConfig& parallel, int ranks,
                     const std::string& poison) {
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    at::set_num_threads(1);
    train::TrialShape shape;
    shape.parallel = parallel;
    shape.dtypes = {at::kHalf, at::kFloat};
    shape.model = model::model_preset("tiny");
    shape.model.moe.num_experts = 4;
    shape.model.moe.router_balance = "bias";
    shape.model.vocab_size = 0;
    shape.model = train::small_model_like(shape.model, parallel);
    train::TrialModel trial(world, shape);
    trial.scaler = optim::LossScaler(true);
    parallel::ParamRegistry& registry = trial.registry;
    std::vector<data::Batch> batches{train::make_rows({2 * trial.mesh.rank(parallel::Axis::dp)},
                                                      shape.model.max_seq_len,
                                                      shape.model.vocab_size)};
    batches.front().update_batches = batches.front().update_samples =
        trial.mesh.size(parallel::Axis::dp);
    const auto held = [&](auto&& call) {
      for (parallel::ParamId id = 0; id < registry.size(); ++id)
        if (registry.spec(id).name == poison) call(registry.main(id).view({-1}).narrow(0, 0, 1));
      registry.refresh_weights();
    };
    const auto all_balanced_by = [&](double rate) {
      for (parallel::ParamId id = 0; id < registry.size(); ++id) {
        if (registry.spec(id).sign_rate == 0) continue;
        EXPECT_EQ(registry.main(id).abs().max().item<float>(), static_cast<float>(rate));
      }
    };
    float whole = 0;
    held([&](const at::Tensor& one) {
      whole = one.item<float>();
      one.fill_(std::numeric_limits<float>::infinity());
    });
    const train::UpdateResult bad = trial.step.run(batches, 20, 1, 1, 1e-3);
    held([&](const at::Tensor& one) {
      EXPECT_TRUE(std::isinf(one.item<float>())) << "no update";
      one.fill_(whole);
    });
    all_balanced_by(0);
    const train::UpdateResult good = trial.step.run(batches, 20, 2, 1, 1e-3);

    all_balanced_by(shape.model.moe.router_bias_rate);
    EXPECT_TRUE(bad.skipped && bad.overflow) << poison << " on rank " << world.rank();
    EXPECT_FALSE(good.skipped) << poison << " on rank " << world.rank();
    EXPECT_EQ(trial.scaler.scale(), 32768.0) << "halved once, on every rank";
    held([&](const at::Tensor& one) { EXPECT_NE(one.item<float>(), whole) << "trained"; });
  });
}

TEST(Fp16, AnOverflowOnOneStageOrOneExpertSkipsTheUpdateOfAllRanks) {
  parallel::ParallelConfig stages;
  stages.pp = 2;
  expect_all_skip(stages, 2, "model.layers.2.self_attn.o_proj.weight");
  parallel::ParallelConfig dealt;
  dealt.ep = 2;
  expect_all_skip(dealt, 2, "model.layers.0.mlp.experts.down_proj");
  dealt.tp = 2;
  dealt.pp = 2;
  dealt.etp = 1;
  expect_all_skip(dealt, 4, "model.layers.2.mlp.experts.gate_up_proj");
}

train::RunConfig pipeline_config(std::int64_t micro_batches) {
  train::RunConfig config;
  config.model = model::model_preset("tiny");
  config.model.num_layers = 5;
  config.parallel.pp = 2;
  config.train.accumulation = micro_batches;
  return config;
}

// The first two updates measure the pipeline actions. The searched schedule trains the others.
TEST(Pipeline, SchedulesMayBeSearched) {
  for (const std::int64_t stages_per_rank : {1, 2}) {
    for (const std::int64_t in_flight : {0, 3}) {
      train::RunConfig config = pipeline_config(5);
      config.parallel.schedule = "auto";
      config.parallel.virtual_stages = stages_per_rank;
      config.parallel.in_flight = in_flight;
      const train::LayoutComparison comparison = compare_with_one_process(config, 2, /*steps=*/4);
      EXPECT_TRUE(comparison.equal()) << stages_per_rank << " " << comparison.grad_rel;
      EXPECT_EQ(comparison.audit, "");
    }
  }
}

TEST(Pipeline, SchedulesMayComeFromAFile) {
  const std::string file = std::filesystem::path(::testing::TempDir()) / "schedule.txt";
  for (const std::string_view name : pipeline::kSchedules) {
    const int stages = pipeline::stages_per_rank(name, 1);
    std::ofstream(file) << pipeline::text_of(pipeline::named_schedule(name, {2, stages, 4}));
    train::RunConfig config = pipeline_config(4);
    // A schedule file is read only once, so each schedule has its own file name.
    const std::string own = file + "." + std::string(name);
    std::filesystem::rename(file, own);
    config.parallel.schedule = own;
    const train::LayoutComparison comparison = compare_with_one_process(config, 2);
    EXPECT_TRUE(comparison.equal()) << name << " " << comparison.grad_rel;
    EXPECT_EQ(comparison.audit, "") << name;
    config.train.accumulation = 3;
    EXPECT_THROW(train::check_verifiable(config, 2), Error) << "a file is of one number";
  }
}

}  // namespace
}  // namespace trireme::testing
