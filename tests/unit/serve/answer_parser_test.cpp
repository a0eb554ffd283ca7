#include "serve/tools/answer_parser.hpp"

#include <gtest/gtest.h>

namespace trireme::serve {
namespace {

struct Read {
  std::string thought;
  std::string content;
  std::vector<AnswerCall> calls;
};

void add(const AnswerDelta& piece, Read& read) {
  read.thought += piece.thought;
  read.content += piece.content;
  read.calls.insert(read.calls.end(), piece.calls.begin(), piece.calls.end());
}

/// Feeds the text in parts of `size` bytes.
Read in_pieces(const std::string& text, const AnswerForm& form, std::size_t size) {
  AnswerParser parser(form);
  Read read;
  for (std::size_t at = 0; at < text.size(); at += size)
    add(parser.push(text.substr(at, size)), read);
  add(parser.finish(), read);
  return read;
}

/// Parts of every size give the same result, which a test checks.
Read read_all(const std::string& text, const AnswerForm& form) {
  const Read whole = in_pieces(text, form, text.size() + 1);
  for (std::size_t size = 1; size <= text.size(); ++size) {
    const Read pieces = in_pieces(text, form, size);
    EXPECT_EQ(pieces.thought, whole.thought) << size;
    EXPECT_EQ(pieces.content, whole.content) << size;
    EXPECT_EQ(pieces.calls.size(), whole.calls.size()) << size;
  }
  return whole;
}

const AnswerForm kWithTools{.tools = {"add", "now"}};

std::string call(const std::string& json) {
  return "<tool_call>\n" + json + "\n</tool_call>";
}

TEST(AnswerParser, TakesThoughtsOffTheBeginning) {
  const Read closed = read_all("<think>\nwell\nthen\n</think>\n\nYes </think>\n", {});
  EXPECT_EQ(closed.thought, "well\nthen");
  EXPECT_EQ(closed.content, "Yes </think>\n");

  const Read opened = read_all("well\n</think>\nYes", {.begins_in_thought = true});
  EXPECT_EQ(opened.thought, "well");
  EXPECT_EQ(opened.content, "Yes");

  const Read unfinished = read_all("well </thin", {.begins_in_thought = true});
  EXPECT_EQ(unfinished.thought, "well </thin");
  EXPECT_EQ(unfinished.content, "");

  EXPECT_EQ(read_all("a <think>b</think>", {}).content, "a <think>b</think>");
  EXPECT_EQ(read_all(" \n<thin", {}).content, " \n<thin");
  EXPECT_EQ(read_all("<think>\n\n</think>\n\n  x ", {}).content, "  x ");
}

TEST(AnswerParser, ReadsCallsAndDropsTheWhiteSpaceAroundThem) {
  const Read read = read_all("Let me see.\n" + call(R"({"name": "add", "arguments": {"a": 1}})") +
                                 "\n" + call(R"({"name": "now", "arguments": {}})") + "\n",
                             kWithTools);

  EXPECT_EQ(read.content, "Let me see.");
  ASSERT_EQ(read.calls.size(), 2U);
  EXPECT_EQ(read.calls[0].name, "add");
  EXPECT_EQ(read.calls[0].arguments, R"({"a":1})");
  EXPECT_EQ(read.calls[1].name, "now");
  EXPECT_TRUE(read.calls[0].id.starts_with("call_"));
  EXPECT_NE(read.calls[0].id, read.calls[1].id);
}

TEST(AnswerParser, UnderstandsTheFormsOfArguments) {
  const auto arguments = [](const std::string& json) {
    const Read read = read_all(call(json), kWithTools);
    return read.calls.empty() ? "none: " + read.content : read.calls[0].arguments;
  };
  EXPECT_EQ(arguments(R"({"name": "add"})"), "{}");
  EXPECT_EQ(arguments(R"({"name": "add", "arguments": null})"), "{}");
  EXPECT_EQ(arguments(R"({"name": "add", "arguments": "{\"a\": \"}\"}"})"), R"({"a":"}"})");
  EXPECT_EQ(arguments(R"({"name": "add", "arguments": {"a": "</tool_call>{\"", "b": [{}]}})"),
            R"({"a":"</tool_call>{\"","b":[{}]})");
  EXPECT_EQ(arguments(R"({"name": "rm", "arguments": {"a": [1], "b": 2, "a": 3}, "name": "add"})"),
            R"({"a":3,"b":2})");  // the last of several equal keys
  EXPECT_EQ(arguments(R"({"arguments": {"x": "你"}, "name": "now"})"), R"({"x":"你"})");
}

TEST(AnswerParser, LeavesWhatIsNoCallInTheContent) {
  for (const std::string& text :
       {call(R"({"name": "rm", "arguments": {}})"), call(R"({"name": "add", "arguments": [1]})"),
        call(R"({"name": "add", "arguments": "1"})"), call(R"({"name": 3})"), call("[1]"),
        call("add(1)"), call(R"({"name": "add" "arguments": {}})"), call(""),
        std::string(R"(<tool_call>{"name": "add", "arguments": {"a": 1)"),
        std::string(R"(<tool_call>{"name": "add", "arguments": {}})"),
        std::string(R"(<tool_call>{"name": "add", "arguments": {}}</tool)"),
        std::string("a <tool_call"), std::string("</tool_call>"),
        std::string("<tool_call>{") + std::string(500, '[') + "}</tool_call>"}) {
    const Read read = read_all(text, kWithTools);
    EXPECT_TRUE(read.calls.empty()) << text;
    EXPECT_EQ(read.content, text);
  }
  const std::string good = call(R"({"name": "add", "arguments": {}})");
  EXPECT_EQ(read_all("<tool_call>" + good, kWithTools).calls.size(), 1U);
  EXPECT_EQ(read_all("<tool_call>" + good, kWithTools).content, "<tool_call>");
  EXPECT_EQ(read_all(good, {}).content, good);  // the request has no tools
}

TEST(AnswerParser, EndsAfterOneCallIfNoMoreAreWanted) {
  AnswerParser parser({.several_calls = false, .tools = {"add"}});
  const std::string one = call(R"({"name": "add", "arguments": {}})");

  const AnswerDelta piece = parser.push(one + "\n" + one);

  EXPECT_EQ(piece.calls.size(), 1U);
  EXPECT_TRUE(parser.is_complete());
  EXPECT_TRUE(parser.push("more").empty());
  EXPECT_TRUE(parser.finish().empty());
}

TEST(AnswerParser, HandsContentOutAsItComes) {
  AnswerParser parser(kWithTools);

  EXPECT_EQ(parser.push("Hello").content, "Hello");
  EXPECT_EQ(parser.push(", world").content, ", world");
  EXPECT_EQ(parser.push(" \n").content, "");  // may come before a call
  EXPECT_EQ(parser.push("!<tool").content, " \n!");
  EXPECT_EQ(parser.push("box>").content, "<toolbox>");
}

}  // namespace
}  // namespace trireme::serve
