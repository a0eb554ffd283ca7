#include "train/config/layout.hpp"

#include <gtest/gtest.h>

namespace trireme {
namespace {

struct Given {
  std::int64_t tp = 1;
  std::int64_t zero = 0;
  std::int64_t zero_shard = 0;
  bool sequence_parallel = false;
  int ranks = 8;
  std::int64_t length = 64;
  std::int64_t local_steps = 1;
  bool hierarchical = false;
  std::int64_t tp_chunks = 1;
};

std::string refusal(const Given& given) {
  ModelConfig model = model_preset("tiny");
  resolve(model, 100);
  ParallelConfig config;
  config.tp = given.tp;
  config.zero = given.zero;
  config.zero_shard = given.zero_shard;
  config.sequence_parallel = given.sequence_parallel;
  config.local_steps = given.local_steps;
  config.hierarchical = given.hierarchical;
  config.tp_chunks = given.tp_chunks;
  Problems problems;
  check_layout(config, {model, {given.length}, given.ranks}, problems);
  try {
    problems.throw_if_any();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "";
}

void expect_refused(const Given& given, const std::vector<std::string>& words) {
  const std::string text = refusal(given);
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "'" << word << "' in '" << text << "'";
}

TEST(Layout, WhatCanBeIsTaken) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({.tp = 4, .sequence_parallel = true}), "");
  EXPECT_EQ(refusal({.tp = 3, .ranks = 6}), "") << "heads need not divide evenly";
  EXPECT_EQ(refusal({.zero = 3, .zero_shard = 4}), "");
  EXPECT_EQ(refusal({.tp = 2, .local_steps = 4}), "");
  EXPECT_EQ(refusal({.hierarchical = true}), "");
  EXPECT_EQ(refusal({.tp = 2, .sequence_parallel = true, .tp_chunks = 32}), "");
}

TEST(Layout, EveryReasonIsGivenAndTheNearestThatWorks) {
  expect_refused({.tp = 8}, {"parallel.tp = 8", "model.num_heads = 4", "--parallel.tp 4"});
  expect_refused({.tp = 3}, {"parallel.tp * cp * pp = 3", "8 ranks", "--parallel.tp 4"});
  expect_refused({.tp = 4, .sequence_parallel = true, .length = 62},
                 {"parallel.tp = 4", "62", "sequence_parallel", "--parallel.tp 2"});
  expect_refused({.zero = 2, .zero_shard = 3},
                 {"parallel.zero_shard = 3", "dp x cp = 8", "--parallel.zero_shard"});
  expect_refused({.tp = 5, .sequence_parallel = true, .ranks = 8},
                 {"num_heads", "8 ranks", "length of the sequences, 64", "--parallel.tp 4"});
}

TEST(Layout, MoreChunksThanTokensAreRefused) {
  expect_refused({.tp = 2, .tp_chunks = 65},
                 {"parallel.tp_chunks = 65", "64 tokens", "--parallel.tp_chunks 64"});
  expect_refused({.tp = 4, .sequence_parallel = true, .tp_chunks = 17},
                 {"parallel.tp_chunks = 17", "16 tokens", "--parallel.tp_chunks 16"});
  expect_refused({.tp = 3, .sequence_parallel = true, .tp_chunks = 99},
                 {"length of the sequences", "8 ranks", "21 tokens",
                  "--parallel.tp 4 --parallel.tp_chunks 16"});
}

TEST(Layout, FormsOfDataParallelismThatExcludeOneAnotherAreRefused) {
  expect_refused({.zero = 1, .local_steps = 4},
                 {"parallel.local_steps = 4", "parallel.zero = 1", "--parallel.local_steps 1"});
  expect_refused(
      {.tp = 8, .zero = 3, .local_steps = 4, .hierarchical = true},
      {"num_heads", "parallel.local_steps = 4", "parallel.hierarchical = true", "zero_shard",
       "--parallel.tp 4 --parallel.local_steps 1 --parallel.hierarchical false"});
  expect_refused({.local_steps = 2, .hierarchical = true},
                 {"parallel.hierarchical = true", "parallel.local_steps = 2",
                  "--parallel.hierarchical false"});
}

}  // namespace
}  // namespace trireme
