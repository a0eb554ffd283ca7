/// Compares training and generation on a GPU with a CPU, started like by a user. One process: NCCL
/// with one rank.

#include <gtest/gtest.h>

#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;

const Arguments kExperts{"--model.num_experts",           "4", "--model.num_experts_per_tok", "2",
                         "--model.moe_intermediate_size", "32"};

class Gpu : public testing::RunProgram {
 protected:
  static Arguments joined(Arguments all, const Arguments& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  static std::vector<double> train(const std::string& run, const char* device,
                                   const Arguments& more) {
    const Exit exit = pretrain(run, joined({"--train.device", device, "--train.steps", "8"}, more));
    EXPECT_EQ(exit.code, 0) << exit.err;
    return exit.code == 0 ? metrics(run).losses() : std::vector<double>{};
  }

  static void expect_same_curve(const std::vector<double>& losses,
                                const std::vector<double>& expected, double bound) {
    ASSERT_EQ(losses.size(), 8U);
    ASSERT_EQ(expected.size(), 8U);
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], bound * expected[i]) << "step " << i + 1;
  }

  static std::string generated(const std::string& run, const char* device,
                               const Arguments& more = {}) {
    const Exit exit = trireme(
        joined({"generate", "--checkpoint", path(run).string(), "--device", device, "--prompt",
                "the ", "--max-tokens", "24", "--temperature", "0", "--ignore-eos", "--json"},
               more));
    EXPECT_EQ(exit.code, 0) << exit.err;
    return exit.code == 0 ? Json::parse(exit.out).at("text").get<std::string>() : "";
  }
};

TEST_F(Gpu, TrainsOnTheCurveOfACpu) {
  expect_same_curve(train("dense_gpu", "cuda", {"--train.precision", "fp32"}),
                    train("dense_cpu", "cpu", {"--train.precision", "fp32"}), 1e-5);
  const Arguments experts = joined({"--train.precision", "fp32"}, kExperts);
  expect_same_curve(train("experts_gpu", "cuda", experts), train("experts_cpu", "cpu", experts),
                    1e-5);
}

/// Compares flash attention and the grouped products of experts with plain operations.
TEST_F(Gpu, FastOperationsTrainAsPlainOnes) {
  const Arguments bf16 = joined({"--train.precision", "bf16"}, kExperts);
  expect_same_curve(train("fast", "cuda", bf16),
                    train("plain", "cuda", joined(bf16, {"--train.fused_ops", "false"})), 5e-3);
}

TEST_F(Gpu, ResumesBitForBit) {
  const Arguments hard =
      joined({"--train.precision", "bf16", "--model.dropout", "0.1", "--parallel.reproducible",
              "true", "--checkpoint.every", "4", "--checkpoint.keep_last", "0"},
             kExperts);
  train("whole", "cuda", hard);
  train("again", "cuda",
        joined(hard, {"--resume", (path("whole") / "checkpoints" / "step-000000004").string()}));
  EXPECT_EQ(hash("again"), hash("whole"));
}

TEST_F(Gpu, SaysWhatACpuSays) {
  for (const auto& [run, more] :
       {std::pair<std::string, Arguments>{"dense", {}}, {"experts", kExperts}}) {
    train(run, "cuda", joined({"--train.precision", "fp32"}, more));
    EXPECT_EQ(generated(run, "cuda"), generated(run, "cpu")) << run;
    EXPECT_FALSE(generated(run, "cuda", {"--precision", "bf16"}).empty()) << run;
  }
}

}  // namespace
}  // namespace trireme
