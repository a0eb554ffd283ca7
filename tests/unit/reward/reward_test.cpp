#include "reward/reward.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace trireme::reward {
namespace {

std::string error_of(std::string_view text) {
  try {
    parse_rewards(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

TEST(Rewards, ParsesNamesWithWeights) {
  const std::vector<WeightedTerm> terms = parse_rewards("length=1,gt=-2.5,model");
  ASSERT_EQ(terms.size(), 3U);
  EXPECT_EQ(terms[0].name, "length");
  EXPECT_EQ(terms[1].weight, -2.5);
  EXPECT_EQ(terms[2].name, kModelTerm);
  EXPECT_EQ(terms[2].weight, 1);
}

TEST(Rewards, RefusesUnknownNamesBadWeightsAndDoubles) {
  EXPECT_NE(error_of("size=1").find("The known terms are length, thinking, repetition, tags, "
                                    "tools, gt, command, model."),
            std::string::npos);
  EXPECT_NE(error_of("length=much").find("the weight 'much' for length"), std::string::npos);
  EXPECT_NE(error_of("length=nan").find("the weight 'nan'"), std::string::npos);
  EXPECT_NE(error_of("gt=1,gt=2").find("names the term gt twice"), std::string::npos);
  EXPECT_NE(error_of("").find("rl.rewards is empty"), std::string::npos);
  EXPECT_NE(error_of("gt=1,").find("the term ''"), std::string::npos);
}

TEST(Rewards, EveryNameExceptTheModelMakesATerm) {
  const std::string record = R"({"gt": ["7"]})";
  const std::vector<Sample> samples{{.text = "It is 7, I think it is.", .record = &record},
                                    {.text = "No."}};
  for (const std::string_view name : reward_names()) {
    const auto term = make_term(name, {.command = "while read -r x; do echo 0; done"});
    EXPECT_EQ(term->score(samples).size(), 2U) << name;
  }
  EXPECT_EQ(make_term("gt", {})->score(samples), (std::vector<double>{2.5, 0}));
  EXPECT_THROW(make_term("model", {}), Error);
  EXPECT_THROW(make_term("command", {}), Error);
}

}  // namespace
}  // namespace trireme::reward
