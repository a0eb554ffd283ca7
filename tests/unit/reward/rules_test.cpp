#include "reward/rules.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "reward/tool_calls.hpp"

namespace trireme::reward {
namespace {

const std::string kRecord = R"({"gt": ["12", "3"], "tools": [
    {"type": "function", "function": {"name": "add", "parameters": {"required": ["a", "b"]}}},
    {"name": "now"}]})";
const std::string kGood = R"(<tool_call>{"name": "add", "arguments": {"a": 1, "b": 0}}</tool_call>)";
const std::string kBad = R"(<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>)";

Sample sample_of(std::string_view text, const std::string& record = kRecord) {
  Sample sample;
  sample.text = text;
  sample.record = &record;
  return sample;
}

TEST(Rules, TheLengthOfAnAnswerIsFrom20To800Characters) {
  EXPECT_EQ(length_reward(sample_of("  " + std::string(19, 'a') + "\n")), -0.5);
  EXPECT_EQ(length_reward(sample_of(std::string(20, 'a'))), 0.5);
  EXPECT_EQ(length_reward(sample_of(std::string(800, 'a'))), 0.5);
  EXPECT_EQ(length_reward(sample_of(std::string(801, 'a'))), -0.5);
  EXPECT_EQ(length_reward(sample_of("")), -0.5);
}

TEST(Rules, AThoughtHas20To300CharactersAndOneEnd) {
  const std::string thought(20, 't');
  EXPECT_EQ(thinking_reward(sample_of("no thought")), 0);
  EXPECT_EQ(thinking_reward(sample_of(thought + "</think>answer")), 1.25);
  EXPECT_EQ(thinking_reward(sample_of("short</think>answer")), -0.25);
  EXPECT_EQ(thinking_reward(sample_of(thought + "</think>a</think>")), 0.75);
  EXPECT_EQ(thinking_reward(sample_of(std::string(301, 't') + "</think></think>")), -0.75);
}

TEST(Rules, RepeatedGroupsOfThreeWordsLowerTheReward) {
  EXPECT_EQ(repetition_reward(sample_of("a b")), 0);
  EXPECT_EQ(repetition_reward(sample_of("a b c d")), 0);
  // 4 groups, 3 different: a b c, b c a, c a b
  EXPECT_EQ(repetition_reward(sample_of("a b c A b c")), -0.25);
  EXPECT_EQ(repetition_reward(sample_of("x x x x x x x x")), -0.5) << "at most 0.5";
  EXPECT_EQ(repetition_reward(sample_of("x x x x x x</think>a b c")), 0) << "only the answer";
}

TEST(Rules, TagsOfCallsMustBeBalancedInEveryAnswer) {
  const std::vector<std::string_view> turns{"<tool_call>", "</tool_call></tool_call>"};
  Sample sample = sample_of(turns.back());
  EXPECT_EQ(tags_reward(sample), -1);
  sample.turns = turns;
  EXPECT_EQ(tags_reward(sample), -1.5);
  EXPECT_EQ(tags_reward(sample_of(kGood)), 0);
}

TEST(Rules, ValidCallsMustBeAsManyAsExpectedTexts) {
  EXPECT_EQ(tools_reward(sample_of("no call")), 0);
  EXPECT_EQ(tools_reward(sample_of(kGood + kGood)), 0.5);
  EXPECT_EQ(tools_reward(sample_of(kGood)), -0.5);
  EXPECT_EQ(tools_reward(sample_of(kGood + kBad)), -1) << "one missing and one invalid call";
  EXPECT_EQ(tools_reward(sample_of("<tool_call>[1]</tool_call>")), -1.5);
  EXPECT_EQ(tools_reward(sample_of("<tool_call>{</tool_call>")), 0) << "not JSON: not a call";
  Sample unfinished = sample_of(kGood + kGood);
  unfinished.unfinished = true;
  EXPECT_EQ(tools_reward(unfinished), 0);
}

TEST(Rules, ArgumentsMayBeAStringAndANameWithoutParametersIsEnough) {
  const std::string text =
      R"(<tool_call>{"name": "add", "arguments": "{\"a\": 1, \"b\": 2}"}</tool_call>)"
      R"(<tool_call>{"name": "now"}</tool_call>)";
  EXPECT_EQ(tools_reward(sample_of(text)), 0.5);
}

TEST(Rules, ExpectedTextsAreFoundAsTextOrAsNumber) {
  EXPECT_EQ(gt_reward(sample_of("12.0 and 3,00")), 1.25) << "300 is not 3";
  EXPECT_EQ(gt_reward(sample_of("12.0 and +3.0000000001")), 2.5);
  EXPECT_EQ(gt_reward(sample_of("none")), 0);
  EXPECT_EQ(gt_reward(sample_of("12 3</think>none")), 0) << "only the answer counts";
  EXPECT_EQ(gt_reward(sample_of("12" + kGood + "3")), 1.25) << "only the text after the calls";
  EXPECT_EQ(gt_reward(sample_of("It is PARIS", R"({"gt": "paris"})")), 2.5);
  EXPECT_EQ(gt_reward(sample_of("x", R"({"gt": ["x", "x"]})")), 1.25) << "a double counts once";
  EXPECT_EQ(gt_reward(sample_of("x", "{}")), 0);
  Sample unfinished = sample_of("12 3");
  unfinished.unfinished = true;
  EXPECT_EQ(gt_reward(unfinished), 0);
}

TEST(Rules, HostileCallsAreNoCallsAndTakeNoLongTime) {
  const std::string deep = "<tool_call>" + std::string(100'000, '[') + "</tool_call>";
  const std::string large = "<tool_call>\"" + std::string(2 << 20, 'x') + "\"</tool_call>";
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += "<tool_call>";
  for (const std::string& text : {deep, large, many}) {
    EXPECT_TRUE(parse_tool_calls(text).empty());
    EXPECT_EQ(tools_reward(sample_of(text)), 0);
  }
}

TEST(Rules, ARecordThatIsNoObjectIsAnError) {
  EXPECT_THROW(gt_reward(sample_of("x", "[1]")), Error);
  EXPECT_EQ(gt_reward(Sample{.text = "x"}), 0) << "no record";
}

}  // namespace
}  // namespace trireme::reward
