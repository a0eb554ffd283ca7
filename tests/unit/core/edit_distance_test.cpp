#include "core/edit_distance.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace trireme {
namespace {

TEST(EditDistance, CountsInsertDeleteReplaceAndSwap) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("lr", "lrr"), 1U);
  EXPECT_EQ(edit_distance("cat", "cut"), 1U);
  EXPECT_EQ(edit_distance("pretrian", "pretrain"), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("ca", "abc"), 3U);  // no edit inside a swap: optimal string alignment
}

TEST(EditDistance, NearestTakesTheClosestWithinTwo) {
  const std::vector<std::string> known{"optim.lr", "optim.eps", "model.lr"};

  EXPECT_EQ(nearest("optim.lrr", known), "optim.lr");
  EXPECT_EQ(nearest("optm.ep", known), "optim.eps");
  EXPECT_EQ(nearest("optim.min", known), "");
  EXPECT_EQ(nearest("optim.xyz", known), "");
}

TEST(EditDistance, NearestTakesTheFirstOfEquals) {
  const std::vector<std::string> known{"bat", "cat"};

  EXPECT_EQ(nearest("hat", known), "bat");
}

TEST(EditDistance, AShortWordIsNotNearToAnotherOne) {
  const std::vector<std::string> known{"tp", "x"};

  EXPECT_EQ(nearest("lr", known), "");
  EXPECT_EQ(nearest("", known), "");
  EXPECT_EQ(nearest("pt", known), "tp");
}

TEST(EditDistance, NearestTakesTheOnlyWordThatBeginsLikeThis) {
  const std::vector<std::string> known{"kto", "apo_zero_unpaired", "lora.rank", "lora.rslora"};

  EXPECT_EQ(nearest("apo", known), "apo_zero_unpaired");
  EXPECT_EQ(nearest("kt", known), "kto");
  EXPECT_EQ(nearest("apo", std::vector<std::string>{"apt", "apo_zero_unpaired"}), "apt");
  EXPECT_EQ(nearest("lora.r", known), "") << "two words begin like this";
}

TEST(EditDistance, DidYouMeanEndsASentence) {
  const std::vector<std::string> known{"adamw", "muon"};

  EXPECT_EQ(did_you_mean("adam", known), "; did you mean 'adamw'?");
  EXPECT_EQ(did_you_mean("adafactor", known), "");
  EXPECT_EQ(did_you_mean("sgd", {}), "");
}

}  // namespace
}  // namespace trireme
