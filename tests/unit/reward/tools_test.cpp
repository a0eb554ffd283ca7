#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/timer.hpp"
#include "reward/expression.hpp"
#include "reward/tool_program.hpp"
#include "reward/tool_table.hpp"

namespace trireme::reward {
namespace {

std::string computed(std::string_view text) {
  const ExpressionResult result = evaluate_expression(text);
  return result.error.empty() ? value_text(result.value) : result.error;
}

TEST(Expression, FollowsThePrecedenceOfPython) {
  EXPECT_EQ(computed("1 + 2 * 3"), "7");
  EXPECT_EQ(computed("(1 + 2) * 3"), "9");
  EXPECT_EQ(computed("-2 ** 2"), "-4");
  EXPECT_EQ(computed("2 ** -1"), "0.5");
  EXPECT_EQ(computed("2 ^ 3 ** 2"), "512");
  EXPECT_EQ(computed("-7 // 2"), "-4");
  EXPECT_EQ(computed("-7 % 3"), "2");
  EXPECT_EQ(computed("7 - 3 - 2"), "2");
  EXPECT_EQ(computed("8 / 4 / 2"), "1");
  EXPECT_EQ(computed("0.1 + 0.2"), "0.30000000000000004");
  EXPECT_EQ(computed(" --3 "), "3");
  EXPECT_EQ(computed(".5 + 1e3"), "1000.5");
}

TEST(Expression, ReadsSignsOfMathematicsAndFunctions) {
  EXPECT_EQ(computed("（3 × 4 − 2）÷ 5"), "2");
  EXPECT_EQ(computed("sqrt(16) + max(1, 2, 3) - abs(-2)"), "5");
  EXPECT_EQ(computed("round(2.6) + floor(1.9) + ceil(0.1)"), "5");
  EXPECT_EQ(computed("pow(2, 10)"), "1024");
}

TEST(Expression, WrongTextHasAReason) {
  EXPECT_EQ(computed(""), "the expression is incomplete");
  EXPECT_EQ(computed("1 +"), "the expression is incomplete");
  EXPECT_EQ(computed("(1"), "the expression is incomplete");
  EXPECT_EQ(computed("1 2"), "invalid character at byte 2");
  EXPECT_EQ(computed("1 / 0"), "division by zero");
  EXPECT_EQ(computed("1 % 0"), "division by zero");
  EXPECT_EQ(computed("sqrt(-1)"), "the result is too large or undefined");
  EXPECT_EQ(computed("__import__('os')"), "unknown name __import__");
  EXPECT_EQ(computed("pow(1)"), "pow has a wrong number of arguments");
  EXPECT_EQ(computed("inf"), "unknown name inf");
}

TEST(Expression, HostileTextEndsAtOnce) {
  const Timer timer;
  EXPECT_EQ(computed("9**9**9"), "the result is too large or undefined");
  EXPECT_EQ(computed("9**9**9**9**9"), "the result is too large or undefined");
  EXPECT_EQ(computed("1e999"), "a number is too large or too small");
  EXPECT_EQ(computed(std::string(1 << 20, '1')), "the expression is longer than 1000 bytes");
  EXPECT_EQ(computed(std::string(900, '(')), "the expression is nested too deeply");
  EXPECT_EQ(computed(std::string(900, '-') + "1"), "the expression is nested too deeply");
  std::string powers = "1";
  for (int i = 0; i < 300; ++i) powers += "**1";
  EXPECT_EQ(computed(powers), "the expression is nested too deeply");
  EXPECT_LT(timer.seconds(), 1);
}

constexpr std::string_view kTable = R"([
  {"name": "math", "description": "Computes.", "kind": "expression",
   "parameters": {"type": "object", "required": ["expression"]}},
  {"name": "capital", "kind": "lookup", "argument": "country", "values": {"France": "Paris"}},
  {"name": "weather", "kind": "lookup", "argument": "city", "values": {}, "default": {"t": 20}},
  {"name": "units", "kind": "units", "factors": {"km_miles": 0.621371}}])";

std::string answered(const std::string& call) {
  return ToolTable::parse(kTable, "table").answer(parse_json(call, "call"));
}

TEST(ToolTable, AnswersCallsOfEveryKind) {
  EXPECT_EQ(answered(R"({"name": "math", "arguments": {"expression": "6*7"}})"),
            R"({"result":"42"})");
  EXPECT_EQ(answered(R"({"name": "math", "arguments": "{\"expression\": \"1/4\"}"})"),
            R"({"result":"0.25"})");
  EXPECT_EQ(answered(R"({"name": "capital", "arguments": {"country": "France"}})"),
            R"({"result":"Paris"})");
  EXPECT_EQ(answered(R"({"name": "weather", "arguments": {"city": "Rome"}})"),
            R"({"result":{"t":20}})");
  EXPECT_EQ(
      answered(
          R"({"name": "units", "arguments": {"value": 10, "from_unit": "KM", "to_unit": "miles"}})"),
      R"({"result":6.2137})");
}

TEST(ToolTable, WrongCallsAreAnsweredWithAnError) {
  EXPECT_EQ(answered(R"({"name": "rm", "arguments": {}})"), R"({"error":"tool not found"})");
  EXPECT_EQ(answered("[1]"), R"({"error":"tool not found"})");
  EXPECT_EQ(answered(R"({"name": 3})"), R"({"error":"tool not found"})");
  EXPECT_EQ(answered(R"({"name": "math"})"), R"({"error":"the argument expression is missing"})");
  EXPECT_EQ(answered(R"({"name": "math", "arguments": {"expression": "9**9**9"}})"),
            R"({"error":"the result is too large or undefined"})");
  EXPECT_EQ(answered(R"({"name": "capital", "arguments": {"country": "Mars"}})"),
            R"({"error":"no such entry"})");
  EXPECT_EQ(answered(R"({"name": "units", "arguments": {"value": "1"}})").substr(0, 9),
            R"({"error":)");
  EXPECT_EQ(
      answered(R"({"name": "units", "arguments": {"value": 1, "from_unit": "a", "to_unit": "b"}})"),
      R"({"error":"unknown units"})");
}

TEST(ToolTable, DeclaresItsToolsForAChat) {
  const Json list = ToolTable::parse(kTable, "table").declarations();
  ASSERT_EQ(list.size(), 4U);
  EXPECT_EQ(list[0]["type"], "function");
  EXPECT_EQ(list[0]["function"]["name"], "math");
  EXPECT_TRUE(list[0]["function"].contains("parameters"));
  EXPECT_FALSE(list[1]["function"].contains("values")) << "a model must not see the answers";
}

TEST(ToolTable, AWrongTableIsAnErrorThatNamesTheTool) {
  const auto error = [](std::string_view text) -> std::string {
    try {
      ToolTable::parse(text, "table.json");
    } catch (const Error& found) {
      EXPECT_EQ(found.kind(), ErrorKind::data);
      return found.what();
    }
    return "no error";
  };
  EXPECT_EQ(error("{}"), "table.json is not a JSON list of tools.");
  EXPECT_EQ(error("[1]"), "table.json: tool 0 is not a JSON object.");
  EXPECT_EQ(error(R"([{"kind": "units"}])"),
            "table.json: tool 0 has no name. Give the text \"name\".");
  EXPECT_EQ(error(R"([{"name": "a", "kind": "code"}])"),
            "table.json: tool 0 (a) has no known kind. Its kind must be expression, lookup or "
            "units.");
  EXPECT_EQ(error(R"([{"name": "a", "kind": "units", "factors": {"x": "1"}}])"),
            "table.json: tool 0 (a) of kind units needs factors (an object of numbers).");
  EXPECT_EQ(error(R"([{"name": "a", "kind": "expression"}, {"name": "a", "kind": "expression"}])"),
            "table.json: two tools have the name a. Give each name once.");
}

TEST(ToolProgram, ReadsOneCallInEachLineAndAnswersWithJson) {
  ToolProgram echo("cat", 10);
  const std::vector<Json> calls{parse_json(R"({"name": "a", "arguments": "{\"x\": 1}"})", "call"),
                                parse_json("[2]", "call")};
  EXPECT_EQ(echo.answer(calls), (std::vector<std::string>{R"({"name":"a","arguments":{"x":1}})",
                                                          R"({"name":null,"arguments":{}})"}));
  ToolProgram large(
      "while read -r x; do printf '\"'; head -c 3000 /dev/zero | tr '\\0' x; echo '\"'; done", 10);
  EXPECT_EQ(large.answer({calls[0]})[0], R"({"error":"the result is too long"})");
}

TEST(ToolProgram, AnAnswerThatIsNoJsonIsAShortReadableError) {
  const std::vector<Json> calls{parse_json(R"({"name": "a", "arguments": {"x": 1}})", "call")};
  const auto error_of = [&](const std::string& answer) {
    try {
      ToolProgram("while read -r x; do " + answer + "; echo; done", 10).answer(calls);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
      return std::string(error.what());
    }
    return std::string();
  };

  EXPECT_EQ(
      error_of("printf no"),
      "rl.tool_command: the program `while read -r x; do printf no; echo; done` answered 'no' "
      "to the call {\"name\":\"a\",\"arguments\":{\"x\":1}}. Each answer must be one line of "
      "JSON with at most 64 levels.");
  const std::string deep = error_of("head -c 100000 /dev/zero | tr '\\0' '['");
  const std::string large = error_of("head -c 1000000 /dev/zero | tr '\\0' 1");
  EXPECT_NE(deep.find(std::string(200, '[') + "...'"), std::string::npos) << deep;
  EXPECT_NE(large.find(std::string(200, '1') + "...'"), std::string::npos) << large.substr(0, 900);
  EXPECT_NE(error_of("printf '\\377\\033[1m'").find("answered '\xEF\xBF\xBD\\x1b[1m'"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::reward
