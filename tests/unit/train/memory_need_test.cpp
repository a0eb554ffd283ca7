#include "train/health/memory_need.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "core/error.hpp"
#include "support/optim_keys.hpp"
#include "train/cost/memory_formula.hpp"
#include "train/start/run_keys.hpp"

namespace trireme::train {
namespace {

RunConfig tiny_run(const std::function<void(RunConfig&)>& change = {}) {
  RunConfig config;
  config.model.preset = "tiny";
  config.train.seq_len = 512;
  if (change) change(config);
  model::resolve(config.model, 6400);
  return config;
}

double sum_of(const std::vector<MemoryPart>& parts) {
  double sum = 0;
  for (const MemoryPart& part : parts) sum += part.bytes;
  return sum;
}

TEST(MemoryNeed, CountsWhatTrainingHolds) {
  const RunConfig config = tiny_run();
  const auto P = static_cast<double>(config.model.num_parameters());
  const double tables = 32768.0 * 32;         // max_seq_len x head_dim
  const double inputs = 4.0 * 512 * 128 * 4;  // micro_batch x seq_len x hidden_size x num_layers

  const double fp32 = sum_of(memory_need(config, {at::kFloat, at::kFloat}));
  const double bf16 = sum_of(memory_need(config, {at::kBFloat16, at::kFloat}));
  const double fp64 = sum_of(memory_need(config, {at::kDouble, at::kDouble}));

  EXPECT_EQ(fp32, 16 * P + 4 * tables + 4 * inputs);
  EXPECT_EQ(bf16, 18 * P + 4 * tables + 2 * inputs);
  EXPECT_EQ(fp64, 32 * P + 8 * tables + 8 * inputs);

  EXPECT_EQ(sum_of(memory_need(config, {at::kFloat, at::kFloat}, 1, /*offloaded=*/true)),
            8 * P + 4 * tables + 4 * inputs)
      << "gradients, and weights to compute with";
  EXPECT_EQ(sum_of(memory_need(config, {at::kBFloat16, at::kFloat}, 1, /*offloaded=*/false,
                               {{.count = P}})),
            bf16 + 2 * P)
      << "a reference";
  const std::vector<ModelBeside> critic{{.kind = ModelBeside::Kind::critic}};
  EXPECT_EQ(
      sum_of(memory_need(config, {at::kBFloat16, at::kFloat}, 1, /*offloaded=*/false, critic)),
      bf16 + 18 * P)
      << "weights, gradients and optimizer state of a critic";
  RunConfig split = config;
  split.parallel.tp = 2;
  const auto split_need = [&](const std::vector<ModelBeside>& beside) {
    return sum_of(memory_need(split, {at::kBFloat16, at::kFloat}, 1, /*offloaded=*/false, beside));
  };
  EXPECT_EQ(split_need({{.kind = ModelBeside::Kind::copy}}), split_need({}) + 2 * P)
      << "the whole model on each rank";

  const auto with = [&](const char* optimizer, double momentum = 0) {
    RunConfig other = config;
    other.optim = optim::optimizer_defaults(optimizer);
    optim_key<double>(other.optim, "momentum") = momentum;
    return sum_of(memory_need(other, {at::kFloat, at::kFloat}));
  };
  EXPECT_EQ(fp32 - with("lion"), 4 * P) << "one slot instead of two";
  EXPECT_EQ(fp32 - with("sgd"), 8 * P) << "none";
  EXPECT_EQ(fp32 - with("sgd", 0.9), 4 * P);
}

TEST(MemoryNeed, CountsTheOwnedShardOfExperts) {
  RunConfig config = tiny_run([](RunConfig& run) {
    run.model.moe.num_experts = 8;
    run.model.moe.moe_intermediate_size = 64;
  });
  const auto P = static_cast<double>(config.model.num_parameters());
  std::vector<ModelBeside> beside;
  const auto bytes = [&](std::int64_t ep, std::int64_t zero) {
    config.parallel.ep = ep;
    config.parallel.zero = zero;
    return sum_of(memory_need(config, {at::kFloat, at::kFloat}, 4, /*offloaded=*/false, beside));
  };
  const double experts = 4.0 * 8 * 3 * 64 * 128;  // layers, experts, matrices, width x hidden_size
  EXPECT_EQ(bytes(1, 0) - bytes(4, 0), 16 * experts * 3 / 4);
  beside = {{.count = P, .experts = experts}};
  EXPECT_EQ(bytes(1, 0) - bytes(4, 0), 20 * experts * 3 / 4) << "a reference's too";
  beside = {};
  EXPECT_EQ(bytes(2, 3), bytes(1, 3)) << "four ranks hold a quarter each, however they share it";
}

TEST(MemoryNeed, OnAPipelineIsTheMeanOfItsRanks) {
  RunConfig config = tiny_run();
  const double tables = 4.0 * 32768.0 * 32;
  const double whole = sum_of(memory_need(config, {at::kFloat, at::kFloat})) - tables;
  config.parallel.pp = 4;
  EXPECT_EQ(sum_of(memory_need(config, {at::kFloat, at::kFloat})) - tables, whole / 4);
}

TEST(MemoryNeed, CountsBlockInputsForTheRanksOwnTokens) {
  RunConfig config = tiny_run();
  const auto inputs = [&] { return memory_need(config, {at::kFloat, at::kFloat}).back().bytes; };
  const double whole = inputs();
  config.parallel.cp = 2;
  EXPECT_EQ(inputs(), whole / 2);
  config.parallel.tp = 4;
  EXPECT_EQ(inputs(), whole / 2) << "the residual stream is whole on each rank of tp";
  config.parallel.sequence_parallel = true;
  EXPECT_EQ(inputs(), whole / 8);
}

TEST(MemoryNeed, IsNotAboveTheFormulaOfARank) {
  const std::vector<std::function<void(RunConfig&)>> runs{
      [](RunConfig&) {},
      [](RunConfig& c) { c.parallel.cp = 4; },
      [](RunConfig& c) { c.parallel.zero = 3; },
      [](RunConfig& c) {
        c.parallel.zero = 1;
        c.parallel.reproducible = true;
      },
      [](RunConfig& c) { c.parallel.offload = "optimizer"; },
      [](RunConfig& c) { c.lora.rank = 2; }};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    RunConfig config = tiny_run(runs[i]);
    config.train.precision = "fp32";
    // With full activation checkpointing, only the inputs of the blocks are saved.
    config.parallel.recompute = "full";
    const double need = sum_of(memory_need(config, {at::kFloat, at::kFloat}, 4)) -
                        4.0 * 32768.0 * 32;  // rotary tables
    EXPECT_LE(need, known_bytes(memory_formula(facts_of_run(config, 4), 0))) << "run " << i;
  }
}

TEST(MemoryNeed, CountsOnlyTheBytesOfFrozenWeights) {
  RunConfig config = tiny_run();
  config.lora.rank = 2;
  const auto P = static_cast<double>(config.model.num_parameters());
  const auto A = static_cast<double>(model::num_lora_parameters(config.lora, config.model));
  const double others = 4.0 * 32768.0 * 32 + 2 * 4.0 * 512 * 128 * 4;

  EXPECT_EQ(sum_of(memory_need(config, {at::kBFloat16, at::kFloat})), 2 * P + 18 * A + others);
}

TEST(MemoryNeed, IsAUsageErrorIfItNeverFitsAndAResourceErrorIfItDoesNotFitNow) {
  RunConfig config = tiny_run();
  const std::unique_ptr<config::ConfigSet> keys = make_run_keys(config);
  const std::vector<MemoryPart> parts = memory_need(config, {at::kFloat, at::kFloat});
  const double sum = sum_of(parts);
  const auto code_with = [&](double total, double available) {
    try {
      check_memory(parts, 2, {total, available}, "this machine", *keys);
    } catch (const Error& error) {
      return exit_code(error.kind());
    }
    return 0;
  };

  EXPECT_EQ(code_with(2 * sum, 2 * sum), 0);
  EXPECT_EQ(code_with(2 * sum, 2 * sum - 1), exit_code(ErrorKind::resource));
  EXPECT_EQ(code_with(2 * sum - 1, 2 * sum - 1), exit_code(ErrorKind::usage));
}

TEST(MemoryNeed, AbsurdSizesAreCountedAndTheirKeysNamed) {
  const std::int64_t kMost = std::int64_t{1} << 31;
  const std::vector<std::pair<std::string, std::function<void(RunConfig&)>>> absurd{
      {"model.num_layers = 100000000", [](RunConfig& c) { c.model.num_layers = 100'000'000; }},
      {"model.hidden_size = 2147483648",
       [&](RunConfig& c) {
         c.model.hidden_size = kMost;
         c.model.intermediate_size = 64;
       }},
      {"model.max_seq_len = 2147483648", [&](RunConfig& c) { c.model.max_seq_len = kMost; }},
      {"train.micro_batch = 1048576", [](RunConfig& c) { c.train.micro_batch = 1 << 20; }}};
  for (const auto& [words, change] : absurd) {
    RunConfig config = tiny_run(change);
    const std::unique_ptr<config::ConfigSet> keys = make_run_keys(config);
    try {
      check_memory(memory_need(config, {at::kFloat, at::kFloat}), 1, {64e9, 64e9}, "this machine",
                   *keys);
      FAIL() << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

TEST(MemoryNeed, CountsActivationsWhereTheyAreKnown) {
  RunConfig config = tiny_run([](RunConfig& c) { c.train.seq_len = 64; });
  const device::ParamDTypes fp32{at::kFloat, at::kFloat};
  const std::vector<MemoryPart> inputs = memory_need(config, fp32);
  std::vector<MemoryPart> all = inputs;
  config.train.precision = "fp32";
  count_activations(config, 1, 0, all);
  EXPECT_EQ(all.back().what, "activations");
  EXPECT_GT(all.back().bytes, 5 * inputs.back().bytes);
  all = inputs;
  config.train.precision = "fp64";
  count_activations(config, 1, 0, all);
  EXPECT_EQ(all.back().what, "block inputs");
}

}  // namespace
}  // namespace trireme::train
