/// Tests what a run reports about its machine: its use, its time, and settings that would fit.

#include <gtest/gtest.h>

#include "comm/liveness/network_settings.hpp"
#include "core/error.hpp"
#include "train/config/open_values.hpp"
#include "train/health/memory_advice.hpp"
#include "train/health/step_shares.hpp"
#include "train/report/device_use.hpp"

namespace trireme::train {
namespace {

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

StepSeconds step(double seconds, double data_wait) {
  return {.step = seconds, .data_wait = data_wait, .comm_exposed = 0.2, .peer_wait = 0.3};
}

TEST(Advice, SlowDataIsSeenOnceAfterTheWarmUp) {
  StepShares shares;
  shares.add(step(100, 99), 1);  // warm-up
  EXPECT_EQ(shares.text(), "");
  for (int i = 0; i < 19; ++i) shares.add(step(2, 0.2), 1);
  EXPECT_FALSE(shares.is_data_newly_slow());
  shares.add(step(2, 0.2), 1);
  EXPECT_TRUE(shares.is_data_newly_slow());
  EXPECT_FALSE(shares.is_data_newly_slow());
  EXPECT_EQ(
      shares.text(),
      "data wait 10 %, exposed communication 10 %, other ranks 5 %, saves 0 %, validation 0 %");
  const std::string advice = data_advice(shares, 1e6, 2, "sets/a");
  EXPECT_TRUE(says(advice, "10 % of 20 steps")) << advice;
  EXPECT_TRUE(says(advice, "2.2 MB/s from sets/a")) << advice;  // 4 bytes per token in 1.8 s
  EXPECT_TRUE(says(advice, "--train.threads 1 instead of 2")) << advice;
}

TEST(Advice, AnUnknownShareIsLeftOut) {
  StepShares shares;
  for (int i = 0; i < 3; ++i) shares.add({.step = 2, .data_wait = 0.2, .save = 1}, 1);
  EXPECT_EQ(shares.text(), "data wait 10 %, saves 50 %, validation 0 %");
}

TEST(Advice, DataAtFivePercentIsNotSlow) {
  StepShares shares;
  for (int i = 0; i < 60; ++i) shares.add(step(2, 0.1), 1);
  EXPECT_FALSE(shares.is_data_newly_slow());
}

RunConfig large_run() {
  RunConfig config;
  config.model.preset = "minimind-2";
  model::resolve(config.model, 6400);
  config.train.precision = "bf16";
  config.train.micro_batch = 6;
  config.train.global_batch = 48;
  config.train.seq_len = 512;
  return config;
}

TEST(Advice, OnMemoryNamesSettingsThatLowerItWithTheBytes) {
  const RunConfig config = large_run();
  const std::string two = memory_advice(config, 2);
  EXPECT_TRUE(says(two, "--train.micro_batch 3: ")) << two;
  EXPECT_TRUE(says(two, "in 8 accumulation steps instead of 4")) << two;
  EXPECT_TRUE(says(two, "--parallel.recompute full: ")) << two;
  EXPECT_TRUE(says(two, "--parallel.zero 1: ")) << two;
  EXPECT_TRUE(says(two, "--parallel.zero 3: ")) << two;
  EXPECT_TRUE(says(two, "4 ranks with --parallel.zero 3: ")) << two;
}

TEST(Advice, OnMemoryOmitsSettingsWithoutEffect) {
  RunConfig config = large_run();
  config.train.micro_batch = 1;
  config.parallel.recompute = "full";
  const std::string alone = memory_advice(config, 1);
  EXPECT_FALSE(says(alone, "micro_batch")) << alone;
  EXPECT_FALSE(says(alone, "recompute")) << alone;
  EXPECT_FALSE(says(alone, "\n  --parallel.zero")) << alone;
  EXPECT_TRUE(says(alone, "2 ranks with --parallel.zero 3: ")) << alone;
}

TEST(Advice, KnowsErrorsOfMemory) {
  EXPECT_TRUE(is_out_of_memory(Error(ErrorKind::resource, "rank 1: out of memory: lower")));
  EXPECT_FALSE(is_out_of_memory(Error(ErrorKind::resource, "disk full")));
  EXPECT_FALSE(is_out_of_memory(Error(ErrorKind::internal, "out of memory")));
}

TEST(Advice, EqualRanksShareOneLineOfNetwork) {
  EXPECT_EQ(
      comm::describe_network({{"a", "eth0 1"}, {"a", "eth0 1"}, {"b", "eth0 2"}, {"a", "eth0 1"}}),
      "\n  ranks 0 to 1 (host a): eth0 1\n  rank 2 (host b): eth0 2\n  rank 3 (host a): eth0 1");
  EXPECT_TRUE(says(comm::own_network_settings(), "lo 127.0.0.1"));
}

TEST(Advice, DevicesInUseAndIdle) {
  const auto gpu = [](int node, int index, int seen) { return DeviceUse{node, index, seen}; };
  EXPECT_EQ(describe_devices({gpu(0, 0, 4), gpu(0, 1, 4)}), "2 of 4 GPUs, 2 idle");
  EXPECT_EQ(describe_devices({gpu(0, 0, 2), gpu(0, 1, 2), gpu(1, 0, 2), gpu(1, 1, 2)}),
            "on each of 2 nodes: 2 of 2 GPUs, none idle");
  EXPECT_EQ(describe_devices({gpu(0, 0, 1), gpu(1, 0, 2)}),
            "on node 0: 1 of 1 GPUs, none idle; on node 1: 1 of 2 GPUs, 1 idle");
  EXPECT_EQ(describe_devices({gpu(0, 0, 2), gpu(0, 1, 2), gpu(0, 0, 2)}),
            "2 of 2 GPUs, none idle, shared by 3 ranks");
  EXPECT_EQ(describe_devices({gpu(0, 0, 1), gpu(0, 0, 1)}),
            "2 GPUs, each visible to one rank only");
  EXPECT_EQ(describe_devices({{0, -1, 0, 1, {0b0011}}, {0, -1, 0, 1, {0b0110}}}),
            "2 threads on 3 CPUs, 1 idle");
  EXPECT_EQ(describe_devices({{0, -1, 0, 4, {0b11}}}),
            "4 threads on 2 CPUs, more threads than CPUs: lower train.threads");
  const DeviceUse small{0, -1, 0, 1, {0b11}};
  EXPECT_EQ(describe_devices({small, small, small}),
            "3 threads on 2 CPUs, more threads than CPUs: start fewer ranks");
}

}  // namespace
}  // namespace trireme::train
