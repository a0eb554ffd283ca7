#include "core/problems.hpp"

#include <gtest/gtest.h>

#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

TEST(Problems, NamesKeyValueRuleAndPlace) {
  Problems problems(
      [](const std::string& key) { return key == "a.b" ? "run.toml:12" : "default"; });

  problems.add("a.b", 1.2, "must be in [0, 1)");
  problems.add("a.c", true, "must be false");
  problems.add("a.d", std::int64_t{3}, "must be even");

  EXPECT_EQ(problems.lines(),
            (std::vector<std::string>{"a.b = 1.2, must be in [0, 1) (run.toml:12)",
                                      "a.c = true, must be false", "a.d = 3, must be even"}));
}

TEST(Problems, ShowsNumbersInFull) {
  Problems problems;

  problems.add("a.b", 0.1 + 0.2, "must be less");

  EXPECT_TRUE(contains(problems.lines()[0], "0.30000000000000004"));
}

TEST(Problems, OneOfListsTheAllowedAndSuggests) {
  const std::vector<std::string> allowed{"adamw", "muon"};
  Problems problems;

  problems.one_of("optim.name", "muon", allowed);
  problems.one_of("optim.name", "adam", allowed);

  EXPECT_EQ(problems.lines(),
            (std::vector<std::string>{
                "optim.name = adam, must be one of adamw, muon; did you mean 'adamw'?"}));
}

TEST(Problems, WritesAnOptionAsItIsTyped) {
  const std::vector<std::string> few{"pretrain", "sft", "dpo"};
  const std::vector<std::string> many{"a1", "b2", "c3", "d4", "e5"};
  Problems problems(
      [](const std::string& key) { return key == "--kind" ? "pack.toml:3" : std::string(); });

  problems.one_of("--kind", "rl", few);
  problems.one_of("--pattern", "zzzz", many);
  problems.add("--copies", std::int64_t{0}, "must be in [1, 1000]");

  EXPECT_EQ(problems.lines(),
            (std::vector<std::string>{"--kind rl, must be pretrain, sft or dpo (pack.toml:3)",
                                      "--pattern zzzz, must be one of a1, b2, c3, d4, e5",
                                      "--copies 0, must be in [1, 1000]"}));
}

TEST(Problems, ThrowsAllLinesAtOnce) {
  Problems problems;
  EXPECT_NO_THROW(problems.throw_if_any());
  problems.add("first");
  problems.add("second");

  const Error error = error_of([&] { problems.throw_if_any(); });

  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_STREQ(error.what(), "first\nsecond");
}

}  // namespace
}  // namespace trireme
