#include "text/chat/chat_reader.hpp"

#include <gtest/gtest.h>

#include "text/json/python_values.hpp"

namespace trireme::text {
namespace {

std::optional<ChatProblem> read(ChatForm form, const std::string& json,
                                std::vector<Conversation>& conversations) {
  static std::string padded;
  padded = json + std::string(64, '\0');
  ChatReader reader(form);
  return reader.read(padded.data(), json.size(), conversations);
}

Conversation good(const std::string& json) {
  std::vector<Conversation> conversations;
  const auto problem = read(ChatForm::conversation, json, conversations);
  EXPECT_FALSE(problem) << problem->reason;
  return problem ? Conversation() : conversations.at(0);
}

std::string reason(const std::string& json, ChatForm form = ChatForm::conversation) {
  std::vector<Conversation> conversations;
  const auto problem = read(form, json, conversations);
  EXPECT_TRUE(conversations.empty() || !problem);
  return problem ? problem->reason : "none";
}

std::string of_messages(const std::string& messages) {
  return R"({"conversations": [)" + messages + "]}";
}

/// Expected: the results of Python's json.loads and json.dumps.
TEST(ChatReader, ReadsTheNumbersThatPythonReads) {
  const Conversation chat = good(
      R"({"id": 123456789012345678901234567890, "conversations": [)"
      R"({"role": "system", "content": "s", "tools": "[{\"n\": 98765432109876543210}]"},)"
      R"({"role": "user", "content": "1e999", "score": NaN},)"
      R"({"role": "assistant", "content": "c", "tool_calls": [)"
      R"({"name": "f", "arguments": {"n": 1234567890123456789012, "m": -1e999, "k": [NaN, 1]}},)"
      R"({"name": "g", "arguments": 1234567890123456789012}]}]})");

  EXPECT_EQ(chat.messages.at(1).content, "1e999");
  EXPECT_EQ(chat.tools.at(0), R"({"n": 98765432109876543210})");
  EXPECT_EQ(chat.messages.at(2).tool_calls.at(0).arguments,
            R"({"n": 1234567890123456789012, "m": -Infinity, "k": [NaN, 1]})");
  EXPECT_EQ(chat.messages.at(2).tool_calls.at(1).arguments, "1234567890123456789012");
  EXPECT_EQ(reason(of_messages(R"({"role": "assistant", "content": 123456789012345678901})")),
            "message 0: content is not a text");
}

TEST(ChatReader, ReadsMessagesCallsAndTools) {
  const Conversation chat = good(of_messages(
      R"({"role": "system", "content": "s", "tools": "[{\"b\": 1.50, \"a\": \"é\\\"\"}]"},)"
      R"({"role": "user", "content": "u"},)"
      R"({"role": "assistant", "content": null, "tool_calls": [{"name": "f", "arguments": {"x": [1, true, null]}},)"
      R"({"type": "function", "function": {"name": "g", "arguments": "{\"raw\":1}"}}]},)"
      R"({"role": "tool", "content": "r"},)"
      R"({"role": "assistant", "content": "", "reasoning_content": ""})"));

  ASSERT_EQ(chat.messages.size(), 5U);
  EXPECT_EQ(chat.tools, std::vector<std::string>{R"({"b": 1.5, "a": "é\""})"});
  EXPECT_TRUE(chat.declares_tools);
  ASSERT_EQ(chat.messages[2].tool_calls.size(), 2U);
  EXPECT_EQ(chat.messages[2].tool_calls[0].arguments, R"({"x": [1, true, null]})");
  EXPECT_EQ(chat.messages[2].tool_calls[1].name, "g");
  EXPECT_EQ(chat.messages[2].tool_calls[1].arguments, R"({"raw":1})");
  EXPECT_FALSE(chat.messages[1].reasoning);
  EXPECT_EQ(chat.messages[4].reasoning, "");
}

TEST(ChatReader, TakesToolsFromTheLastSystemMessageThatHasSome) {
  const std::string answer = R"({"role": "assistant", "content": "a"})";
  const std::string one = R"({"role": "system", "content": "", "tools": [{"n": 1}]},)";

  EXPECT_EQ(
      good(of_messages(one + R"({"role": "system", "content": "", "tools": [{"n": 2}]},)" + answer))
          .tools,
      std::vector<std::string>{"{\"n\": 2}"});
  EXPECT_EQ(
      good(of_messages(one + R"({"role": "system", "content": "", "tools": []},)" + answer)).tools,
      std::vector<std::string>{"{\"n\": 1}"});
  EXPECT_TRUE(
      good(of_messages(one + R"({"role": "system", "content": "", "tools": "[]"},)" + answer))
          .tools.empty());
  EXPECT_EQ(good(R"({"messages": [)" + answer + R"(], "tools": [{"n": 3}]})").tools,
            std::vector<std::string>{"{\"n\": 3}"});
  EXPECT_TRUE(good(of_messages(R"({"role": "user", "content": "", "tools": [{"n": 1}]},)" + answer))
                  .tools.empty());
}

TEST(ChatReader, ReadsPairs) {
  std::vector<Conversation> sides;
  const std::string user = R"({"role": "user", "content": "q"},)";
  ASSERT_FALSE(read(ChatForm::pair,
                    R"({"chosen": [)" + user +
                        R"({"role": "assistant", "content": "a"}], "rejected": [)" + user +
                        R"({"role": "assistant", "content": "b"}]})",
                    sides));
  ASSERT_EQ(sides.size(), 2U);
  EXPECT_EQ(sides[1].messages[1].content, "b");

  ASSERT_FALSE(read(ChatForm::pair, R"({"prompt": "q", "chosen": "a", "rejected": "b"})", sides));
  EXPECT_EQ(sides[0].messages[0].content, "q");
  EXPECT_EQ(sides[1].messages[1].role, Role::assistant);
  EXPECT_EQ(reason(R"({"chosen": "a", "rejected": "b"})", ChatForm::pair),
            "field 'chosen' is a text, and there is no field 'prompt'");
  EXPECT_EQ(reason(R"({"prompt": null, "chosen": "a", "rejected": "b"})", ChatForm::pair),
            "field 'chosen' is a text, and field 'prompt' is null");
  EXPECT_EQ(reason(R"({"prompt": "q", "chosen": "a", "rejected": null})", ChatForm::pair),
            "field 'rejected' is null");
  EXPECT_EQ(reason(R"({"chosen": [)" + user + R"({"role": "assistant", "content": "a"}]})",
                   ChatForm::pair),
            "no field 'rejected'; its fields are 'chosen'; the form of --kind dpo is preference "
            R"({"prompt", "chosen", "rejected"})");
}

TEST(ChatReader, RefusesPairsWithTwoPrompts) {
  const auto message = [](const std::string& role, const std::string& content) {
    return formatted(R"({{"role": "{}", "content": "{}"}})", role, content);
  };
  const auto pair = [](const std::string& chosen, const std::string& rejected) {
    return formatted(R"({{"chosen": [{}], "rejected": [{}]}})", chosen, rejected);
  };
  const std::string q = message("user", "q") + ",";
  const std::string a = message("assistant", "a");
  EXPECT_EQ(reason(pair(q + a, message("user", "r") + "," + a), ChatForm::pair),
            "fields 'chosen' and 'rejected' have different prompts: they differ in message 0 (user "
            "and user), and the two sides of a pair may only differ from an answer on");
  EXPECT_NE(reason(pair(message("system", "s") + "," + q + a, q + a), ChatForm::pair)
                .find("in message 0 (system and user)"),
            std::string::npos);

  // After different answers, the user may ask something else.
  std::vector<Conversation> sides;
  EXPECT_FALSE(read(ChatForm::pair,
                    pair(q + a + "," + message("user", "why?") + "," + a,
                         q + message("assistant", "b") + "," + message("user", "no") + "," + a),
                    sides));
  EXPECT_FALSE(
      read(ChatForm::pair, pair(q + a, q + a + "," + message("user", "why?") + "," + a), sides))
      << "one side is longer";
}

TEST(ChatReader, PutsAListedPromptBeforeBothSides) {
  std::vector<Conversation> sides;
  const std::string user = R"({"role": "user", "content": "q"})";
  const std::string answers =
      R"("chosen": [{"role": "assistant", "content": "a"}], "rejected": [)" + user +
      R"(,{"role": "assistant", "content": "b"}])";

  ASSERT_FALSE(read(ChatForm::pair, R"({"prompt": [)" + user + "], " + answers + "}", sides));

  // The second side repeats the prompt, which is kept once.
  for (const Conversation& side : sides) {
    ASSERT_EQ(side.messages.size(), 2U);
    EXPECT_EQ(side.messages[0].content, "q");
    EXPECT_EQ(side.messages[1].role, Role::assistant);
  }
  EXPECT_EQ(reason(R"({"prompt": [], )" + answers + "}", ChatForm::pair),
            "field 'prompt' is an empty list, must hold at least one message");
}

TEST(ChatReader, SaysWhyARecordIsBad) {
  const std::string ok = R"({"role": "assistant", "content": "a"})";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[1]", "not a JSON object"},
      {"{}", "no field 'conversations' (nor 'messages')"},
      {R"({"conversations": null})", "field 'conversations' is null"},
      {R"({"conversations": "x"})", "field 'conversations' is not a list"},
      {of_messages(""), "field 'conversations' is an empty list"},
      {of_messages("3"), "message 0: not an object"},
      {of_messages(R"({"content": "a"})"), "message 0: no role"},
      {of_messages(ok + R"(,{"role": "bot", "content": "a"})"),
       "message 1: unknown role 'bot', must be system, user, assistant or tool"},
      {of_messages(R"({"role": 3, "content": "a"})"), "message 0: role is not a text"},
      {of_messages(R"({"role": "user", "content": "a"})"),
       "field 'conversations' has no assistant message"},
      {of_messages(R"({"role": "user"})"), "message 0: no content"},
      {of_messages(R"({"role": "assistant", "content": null})"), "message 0: no content"},
      {of_messages(R"({"role": "user", "content": {"text": "a"}})"),
       "message 0: content is not a text"},
      {of_messages(R"({"role": "user", "content": ["a"]})"),
       "message 0: a part of content is not an object"},
      {of_messages(R"({"role": "user", "content": [{"text": "a"}]})"),
       "message 0: a part of content has no type"},
      {of_messages(R"({"role": "user", "content": [{"type": "image_url", "image_url": {}}]})"),
       "message 0: a part of content is of type 'image_url', must be text"},
      {of_messages(R"({"role": "user", "content": [{"type": "text"}]})"),
       "message 0: a part of content has no text"},
      {of_messages(R"({"role": "assistant", "content": "", "reasoning_content": 1})"),
       "message 0: reasoning_content is not a text"},
      {of_messages(R"({"role": "assistant", "content": "", "tool_calls": "{"})"),
       "message 0: tool_calls is not valid JSON"},
      {of_messages(R"({"role": "assistant", "content": "", "tool_calls": {"name": "f"}})"),
       "message 0: tool_calls is not a list"},
      {of_messages(R"({"role": "assistant", "content": "", "tool_calls": [{"arguments": {}}]})"),
       "message 0: a tool call has no name"},
      {of_messages(R"({"role": "assistant", "content": "", "tool_calls": [{"name": "f"}]})"),
       "message 0: a tool call has no arguments"},
      {of_messages(R"({"role": "system", "content": "", "tools": ["f"]})"),
       "message 0: a tool is not an object"},
      {"{\"conversations\": [", "not valid JSON"}};
  for (const auto& [json, expected] : cases) {
    EXPECT_EQ(reason(json).substr(0, expected.size()), expected) << json;
  }
  const std::string in_array = of_messages(R"({"role": "assistant", "content": "a"})") + ",";
  EXPECT_NE(reason(in_array).find("a comma follows the record"), std::string::npos);
}

TEST(ChatReader, JoinsThePartsOfAContentAsLines) {
  const Conversation chat = good(of_messages(
      R"({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},)"
      R"({"role": "user", "content": []},)"
      R"({"role": "assistant", "content": [{"type": "text", "text": "c", "cache": 1}]})"));

  EXPECT_EQ(chat.messages[0].content, "a\nb");
  EXPECT_EQ(chat.messages[1].content, "");
  EXPECT_EQ(chat.messages[2].content, "c");
}

TEST(ChatReader, ARequestNeedsNoAnswer) {
  std::vector<Conversation> chats;
  const auto problem = read(ChatForm::request,
                            R"({"messages": [{"role": "developer", "content": "s"},)"
                            R"({"role": "user", "content": "q"}], "tools": [{"n": 1}]})",
                            chats);

  ASSERT_FALSE(problem) << problem->reason;
  ASSERT_EQ(chats.size(), 1U);
  ASSERT_EQ(chats[0].messages.size(), 2U);
  EXPECT_EQ(chats[0].messages[0].role, Role::system);
  EXPECT_EQ(chats[0].tools, std::vector<std::string>{"{\"n\": 1}"});
  EXPECT_EQ(reason(R"({"messages": []})", ChatForm::request),
            "field 'messages' is an empty list, must hold at least one message");
  EXPECT_EQ(reason(R"({"conversations": []})", ChatForm::request), "no field 'messages'");
  const Conversation packed = good(of_messages(
      R"({"role": "developer", "content": "s"}, {"role": "assistant", "content": "a"})"));
  EXPECT_EQ(packed.messages.at(0).role, Role::system);
}

TEST(ChatReader, MarksSwitchTheTargetsOfAnswersOff) {
  const auto marked = [](const std::string& marks, const char* role = "assistant") {
    return of_messages(R"({"role": "assistant", "content": "a"}, {"role": ")" + std::string(role) +
                       R"(", "content": "b")" + marks + "}");
  };
  for (const char* off : {R"(, "weight": 0)", R"(, "weight": false)", R"(, "train": false)",
                          R"(, "train": 0.0)", R"(, "weight": 0, "train": false)"}) {
    const Conversation chat = good(marked(off));
    EXPECT_TRUE(chat.messages[0].is_target);
    EXPECT_FALSE(chat.messages[1].is_target) << off;
  }
  for (const char* on : {"", R"(, "weight": 1)", R"(, "train": true)", R"(, "weight": null)"})
    EXPECT_TRUE(good(marked(on)).messages[1].is_target) << on;
  const std::string allowed = ", must be 0, 1, false or true";
  EXPECT_EQ(reason(marked(R"(, "weight": 0.5)")), "message 1: weight is 0.5" + allowed);
  EXPECT_EQ(reason(marked(R"(, "weight": "0")")), "message 1: weight is \"0\"" + allowed);
  EXPECT_EQ(reason(marked(R"(, "train": NaN)")), "message 1: train is NaN" + allowed);
  EXPECT_EQ(reason(marked(R"(, "weight": 2)", "user")), "message 1: weight is 2" + allowed);
  EXPECT_EQ(reason(marked(R"(, "weight": 0, "train": true)")),
            "message 1: weight and train contradict each other");
}

TEST(ChatReader, ReadsTheOlderFormOfCalls) {
  const Conversation chat = good(of_messages(
      R"({"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{\"a\": 1}"}},)"
      R"({"role": "function", "name": "f", "content": "3"})"));

  ASSERT_EQ(chat.messages.size(), 2U);
  ASSERT_EQ(chat.messages[0].tool_calls.size(), 1U);
  EXPECT_EQ(chat.messages[0].tool_calls[0].name, "f");
  EXPECT_EQ(chat.messages[0].tool_calls[0].arguments, R"({"a": 1})");
  EXPECT_EQ(chat.messages[1].role, Role::tool);
  const std::string call = R"({"name": "f", "arguments": "{}"})";
  EXPECT_EQ(reason(of_messages(R"({"role": "assistant", "function_call": )" + call +
                               R"(, "tool_calls": [)" + call + "]}")),
            "message 0: tool_calls and function_call are both present, must be only one of them");
}

TEST(ChatReader, ArgumentsThatAreATextMustBeJson) {
  const auto with = [](const std::string& arguments) {
    return R"({"role": "assistant", "tool_calls": [{"name": "f", "arguments": )" + arguments +
           "}]}";
  };
  for (const char* json : {R"("{}")", R"("{\"n\": 123456789012345678901234567890}")", R"("[NaN]")"})
    EXPECT_EQ(good(of_messages(with(json))).messages.size(), 1U) << json;
  for (const char* text : {R"("{x: 1}")", R"("")", R"("{\"a\": 1")"}) {
    EXPECT_EQ(reason(of_messages(with(text))).substr(0, 60),
              "message 0: the arguments of tool call 'f' are not valid JSON")
        << text;
  }
  const std::string in_text =
      R"({"role": "assistant", "tool_calls": "[{\"name\": \"f\", \"arguments\": \"{x\"}]"})";
  EXPECT_NE(reason(of_messages(in_text)), "none");
  std::vector<Conversation> chats;  // a request shows a model its own calls unchanged
  EXPECT_FALSE(read(ChatForm::request, R"({"messages": [)" + with(R"("{x")") + "]}", chats));
}

TEST(ChatReader, ASystemTextBesideTheMessagesIsTheirFirst) {
  const std::string answer = R"([{"role": "assistant", "content": "a"}])";
  const Conversation chat = good(R"({"system": "s", "messages": )" + answer + "}");
  ASSERT_EQ(chat.messages.size(), 2U);
  EXPECT_EQ(chat.messages[0].role, Role::system);
  EXPECT_EQ(chat.messages[0].content, "s");
  EXPECT_EQ(good(R"({"system": "", "messages": )" + answer + "}").messages.size(), 1U);
  EXPECT_EQ(
      reason(R"({"system": "s", "messages": [{"role": "developer", "content": "d"}, )"
             R"({"role": "assistant", "content": "a"}]})"),
      "field 'system' and a message of role system are both present, must be only one of them");
  EXPECT_EQ(reason(R"({"system": 3, "messages": )" + answer + "}"), "field 'system' is not a text");
  std::vector<Conversation> sides;
  ASSERT_FALSE(read(ChatForm::pair,
                    R"({"system": "s", "prompt": "q", "chosen": "a", "rejected": "b"})", sides));
  EXPECT_EQ(sides[0].messages.at(0).content, "s");
  EXPECT_EQ(sides[1].messages.at(0).role, Role::system);
}

TEST(ChatReader, TellsBadTextFromBadRecords) {
  std::vector<Conversation> conversations;
  const auto surrogate =
      read(ChatForm::conversation, of_messages(R"({"role": "assistant", "content": "a\ud800"})"),
           conversations);
  const auto broken = read(ChatForm::conversation, "{", conversations);

  ASSERT_TRUE(surrogate && broken);
  EXPECT_TRUE(surrogate->bad_text);
  EXPECT_FALSE(broken->bad_text);
}

TEST(PythonJson, WritesNumbersAsPythonDoes) {
  // json.dumps of these numbers in CPython 3.11
  const std::vector<std::pair<double, std::string>> cases = {
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {1.0, "1.0"},
      {0.1, "0.1"},
      {100.0, "100.0"},
      {123456.789, "123456.789"},
      {1e15, "1000000000000000.0"},
      {9999999999999998.0, "9999999999999998.0"},
      {1e16, "1e+16"},
      {1.5e300, "1.5e+300"},
      {0.0001, "0.0001"},
      {0.00001, "1e-05"},
      {0.00012345, "0.00012345"},
      {5e-324, "5e-324"},
      {-2.5e-7, "-2.5e-07"},
      {1.7976931348623157e308, "1.7976931348623157e+308"}};
  for (const auto& [value, expected] : cases) {
    std::string text;
    append_json_number(value, text);
    EXPECT_EQ(text, expected);
  }
}

TEST(PythonJson, EscapesWhatPythonEscapes) {
  std::string text;
  append_json_text(std::string_view("a\"\\/\b\f\n\r\t\x01\x1f\x7f é\u2028\0", 19), text);
  EXPECT_EQ(text, "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f é\u2028\\u0000\"");
}

}  // namespace
}  // namespace trireme::text
