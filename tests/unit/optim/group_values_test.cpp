#include "optim/group_values.hpp"

#include <gtest/gtest.h>

#include "optim/optimizer.hpp"
#include "support/optim_keys.hpp"

namespace trireme::optim {
namespace {

TEST(GroupValues, AreParsedByGroup) {
  const std::vector<GroupValues> groups =
      parse_group_values("embed.beta2=0.995,smear.lr=0.2,embed.weight_decay=1e-3");

  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].group, "embed");
  EXPECT_EQ(groups[0].beta2, 0.995);
  EXPECT_EQ(groups[0].weight_decay, 0.001);
  EXPECT_FALSE(groups[0].lr || groups[0].beta1);
  EXPECT_EQ(groups[1].group, "smear");
  EXPECT_EQ(groups[1].lr, 0.2);
  EXPECT_TRUE(parse_group_values("").empty());
}

TEST(GroupValues, AnInvalidListIsRefusedByItsEntry) {
  const auto problem = [](const char* text) {
    OptimConfig config = optimizer_defaults("muon");
    optim_key<std::string>(config, "groups") = text;
    Problems problems;
    check(config, problems);
    return problems.empty() ? std::string() : problems.lines()[0];
  };
  EXPECT_EQ(problem("embed.beta2=0.9"), "");
  EXPECT_EQ(problem("embed"),
            "optim.groups = embed, has the entry 'embed'. An entry must be GROUP.SETTING=NUMBER");
  EXPECT_NE(problem("body.lr=1").find("has the group 'body' in 'body.lr=1'. The groups are embed"),
            std::string::npos);
  EXPECT_NE(problem("smear.gamma=1").find("The settings are lr, beta1, beta2, weight_decay"),
            std::string::npos);
  EXPECT_NE(problem("head.lr=1").find("Set optim.head_lr instead"), std::string::npos);
  EXPECT_NE(problem("head.beta1=1").find("It must be a number in [0, 1)"), std::string::npos);
  EXPECT_NE(problem("head.beta1=x").find("It must be a number in [0, 1)"), std::string::npos);
  EXPECT_NE(problem("head.beta1=nan").find("It must be a number in [0, 1)"), std::string::npos);
  EXPECT_NE(problem("head.beta1=0,head.beta1=0").find("sets head.beta1 twice"), std::string::npos);
}

TEST(GroupValues, MuonRefusesInvalidSchedules) {
  const auto problem = [](const char* key, const auto& value) {
    OptimConfig config = optimizer_defaults("normuon");
    optim_key<std::decay_t<decltype(value)>>(config, key) = value;
    Problems problems;
    check(config, problems);
    return problems.empty() ? std::string() : problems.lines()[0];
  };
  EXPECT_EQ(problem("momentum_final", 0.5),
            "optim.momentum_final = 0.5, needs optim.schedule = wsd");
  EXPECT_NE(problem("momentum_final", 1.0).find("must be in [0, 1), or -1: optim.momentum_end"),
            std::string::npos);
  EXPECT_EQ(problem("decay_schedule", std::string("step")),
            "optim.decay_schedule = step, must be one of constant, linear, cosine");
}

}  // namespace
}  // namespace trireme::optim
