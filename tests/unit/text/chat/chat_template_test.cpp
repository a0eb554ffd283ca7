#include "text/chat/chat_template.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "unit/text/chat/chats.hpp"

namespace trireme::text {
namespace {

using samples::chat_of;
using samples::text_in;
using samples::tool_chat;
using enum Role;

const Conversation kTwoTurns =
    chat_of({{user, "Hi"}, {assistant, "Hello"}, {user, "Bye"}, {assistant, " See you \n"}});

TEST(ChatTemplate, MinimindV1AndV2AnnounceTheAnswerInTheUserTurn) {
  const std::string turns =
      "<s>user\nHi</s>\n<s>assistant\nHello</s>\n<s>user\nBye</s>\n<s>assistant\n See you \n</s>\n";
  const Conversation with_system = chat_of({{system, "Sys"}, {user, "Hi"}, {assistant, "Hello"}});

  EXPECT_EQ(text_in("minimind-v1", kTwoTurns), turns);
  EXPECT_EQ(text_in("minimind-v2", kTwoTurns),
            "<s>system\n你是 MiniMind，是一个有用的人工智能助手。</s>\n" + turns);
  EXPECT_EQ(text_in("minimind-v1", with_system), "Sys<s>user\nHi</s>\n<s>assistant\nHello</s>\n");
  EXPECT_EQ(text_in("minimind-v2", with_system),
            "<s>system\nSys</s>\n<s>user\nHi</s>\n<s>assistant\nHello</s>\n");
}

TEST(ChatTemplate, ChatMlFamilyDiffersInSystemTextAndThoughts) {
  const Conversation chat = chat_of({{user, "Hi"}, {assistant, "Hello"}});
  const std::string question = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  const std::string empty = "<think>\n\n</think>\n\n";

  EXPECT_EQ(text_in("chatml", chat), question + "Hello<|im_end|>\n");
  EXPECT_EQ(text_in("minimind-v2.5", chat),
            "<|im_start|>system\nYou are a helpful assistant<|im_end|>\n" + question +
                "Hello<|im_end|>\n");
  EXPECT_EQ(text_in("minimind-v3", chat), question + empty + "Hello<|im_end|>\n");
  EXPECT_EQ(text_in("qwen3", chat), question + empty + "Hello<|im_end|>\n");
}

TEST(ChatTemplate, Qwen3WritesThoughtsOnlyAfterTheLastQuestion) {
  Conversation chat = kTwoTurns;
  chat.messages[1].reasoning = "first";

  EXPECT_EQ(text_in("qwen3", chat),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
            "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
            " See you \n<|im_end|>\n");
  EXPECT_NE(text_in("minimind-v3", chat).find("<think>\nfirst\n</think>\n\nHello"),
            std::string::npos);
}

TEST(ChatTemplate, WritesToolsCallsAndResults) {
  const std::string text = text_in("minimind-v3", tool_chat());

  EXPECT_TRUE(text.starts_with("<|im_start|>system\nBe brief.\n\n# Tools\n\nYou may call"));
  EXPECT_NE(text.find("<tools>\n{\"name\": \"add\"}\n{\"name\": \"sub\"}\n</tools>\n\nFor each"),
            std::string::npos);
  EXPECT_TRUE(text.ends_with(
      "<|im_start|>user\nSum?<|im_end|>\n"
      "<|im_start|>assistant\n<think>\n\n</think>\n\n"
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"sub\", \"arguments\": {}}\n</tool_call><|im_end|>\n"
      "<|im_start|>user\n<tool_response>\n3\n</tool_response>\n<tool_response>\n4\n</tool_response>"
      "<|im_end|>\n<|im_start|>assistant\n<think>\neasy\n</think>\n\nSeven.<|im_end|>\n"))
      << text;
}

TEST(ChatTemplate, CutsThoughtsOutOfTheContent) {
  const auto v3 = [](const std::string& content) {
    const std::string text = text_in("minimind-v3", chat_of({{assistant, content}}));
    const std::string before = "<|im_start|>assistant\n";
    return text.substr(before.size(), text.size() - before.size() - 11);
  };

  EXPECT_EQ(v3("<think>\n\nwhy\n</think>\n\n\nso"), "<think>\nwhy\n</think>\n\nso");
  EXPECT_EQ(v3("a</think>b<think>c</think>d"), "<think>\na\n</think>\n\nd");
  EXPECT_EQ(v3("<think>open"), "<think>\n\n</think>\n\n<think>open");
  EXPECT_EQ(v3("\n\nlines"), "<think>\n\n</think>\n\nlines");
}

TEST(ChatTemplate, Llama3TrimsWhatPythonTrims) {
  const Conversation chat =
      chat_of({{system, "\x1C S \u3000"}, {user, "\u00A0"}, {assistant, " a b\u2029"}});

  EXPECT_EQ(text_in("llama3", chat),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\n<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\na b<|eot_id|>");
  EXPECT_TRUE(text_in("llama3", chat, {.begin_token = "<bos>"}).starts_with("<bos><|start"));
}

TEST(ChatTemplate, PlainHasNothingButContentsAndEndTokens) {
  EXPECT_EQ(text_in("plain", kTwoTurns, {.end_token = "<eos>"}),
            "Hi\nHello<eos>\nBye\n See you \n<eos>\n");
}

TEST(ChatTemplate, AsksForTheNextTurn) {
  const Conversation chat = chat_of({{user, "Hi"}});
  const auto end = [&](const std::string& name, std::optional<bool> thinking) {
    const std::string text = text_in(name, chat, {.generation_prompt = true, .thinking = thinking});
    return text.substr(text.rfind("assistant"));
  };
  const std::string empty = "<think>\n\n</think>\n\n";

  EXPECT_EQ(end("minimind-v3", {}), "assistant\n" + empty);
  EXPECT_EQ(end("minimind-v3", true), "assistant\n<think>\n");
  EXPECT_EQ(end("minimind-v2.5", {}), "assistant\n");
  EXPECT_EQ(end("minimind-v2.5", false), "assistant\n" + empty);
  EXPECT_EQ(end("qwen3", true), "assistant\n");
  EXPECT_EQ(end("chatml", false), "assistant\n");
  EXPECT_EQ(end("llama3", {}), "assistant<|end_header_id|>\n\n");
  EXPECT_EQ(end("minimind-v2", {}), "assistant\n");
}

TEST(ChatTemplate, DropsEmptyThoughtsOnlyFromAnswers) {
  const std::string empty = "<think>\n\n</think>\n\n";
  Conversation chat = chat_of({{user, empty}, {assistant, "a"}, {assistant, "b"}});
  chat.messages[2].reasoning = "real";
  chat.messages[2].content = "b" + empty + "c";

  EXPECT_EQ(text_in("minimind-v3", chat, {.drop_empty_think = true}),
            "<|im_start|>user\n" + empty + "<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n" +
                "<|im_start|>assistant\n<think>\nreal\n</think>\n\nbc<|im_end|>\n");
  EXPECT_EQ(text_in("minimind-v2", chat_of({{assistant, empty + "x" + empty}}),
                    {.drop_empty_think = true}),
            "<s>system\n你是 MiniMind，是一个有用的人工智能助手。</s>\nx</s>\n");
}

TEST(ChatTemplate, KnowsTheAuthorOfEachText) {
  for (const char* name : {"minimind-v1", "minimind-v2", "minimind-v2.5", "minimind-v3", "chatml",
                           "qwen3", "llama3", "plain"}) {
    const RenderedChat chat = chat_template(name).render(chat_of({{system, "SYS"},
                                                                  {user, "USER"},
                                                                  {assistant, "SAID"},
                                                                  {user, "U2"},
                                                                  {assistant, "S2"}}),
                                                         {.end_token = "<eos>"});
    std::string contents;
    for (const TextRange& range : chat.contents)
      contents += chat.text.substr(range.begin, range.end - range.begin) + "|";
    EXPECT_EQ(contents, "SYS|USER|SAID|U2|S2|") << name;
    ASSERT_EQ(chat.answers.size(), 2U) << name;
    for (const TextRange& range : chat.answers) {
      const std::string said = chat.text.substr(range.begin, range.end - range.begin);
      EXPECT_NE(said.find(&range == &chat.answers[0] ? "SAID<" : "S2<"), std::string::npos) << said;
      EXPECT_EQ(said.back(), '>') << said;
    }
  }
}

TEST(ChatTemplate, RefusesUnknownNames) {
  try {
    chat_template("chatlm");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what())
                  .find("there is no chat template chatlm; it must be one of: minimind-v1"),
              std::string::npos);
    EXPECT_TRUE(std::string_view(error.what()).ends_with("; did you mean 'chatml'?"))
        << error.what();
  }
}

TEST(ChatTemplate, IsFoundByItsJinja) {
  for (const char* name : {"minimind-v1", "minimind-v2", "minimind-v2.5", "minimind-v3", "chatml",
                           "qwen3", "llama3", "plain"}) {
    const ChatTemplate* found = nearest_chat_template(chat_template(name).jinja());
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->name, name);
  }
  const auto nearest = [](const std::string& jinja) {
    const ChatTemplate* found = nearest_chat_template(jinja);
    return found == nullptr ? std::string("none") : std::string(found->name);
  };
  EXPECT_EQ(nearest("{{ '<|im_start|>' }}{%- if enable_thinking %}"), "qwen3");
  EXPECT_EQ(
      nearest("{{ '<|im_start|>system\\nYou are a helpful assistant' }}{%- if enable_thinking %}"),
      "minimind-v2.5");
  EXPECT_EQ(nearest("{{ '<|im_start|>' }}{%- if open_thinking %}"), "minimind-v3");
  EXPECT_EQ(nearest("{{ '<|im_start|>user' }}"), "chatml");
  EXPECT_EQ(nearest("{{ '<|start_header_id|>' }}"), "llama3");
  EXPECT_EQ(nearest("{{ '<s>user\\n' + content + '</s>\\n' }}"), "minimind-v1");
  EXPECT_EQ(nearest("[INST] {{ messages }} [/INST]"), "none");
  EXPECT_EQ(nearest("{{ '<s>' }}[INST] {{ messages }} [/INST]</s>"), "none");
}

TEST(ChatTemplate, SaysWhetherThinkingCanBeSwitched) {
  Conversation chat = samples::chat_of({{Role::user, "q"}});
  for (const char* name : {"minimind-v1", "minimind-v2", "minimind-v2.5", "minimind-v3", "chatml",
                           "qwen3", "llama3", "plain"}) {
    const auto prompt = [&](std::optional<bool> thinking) {
      return samples::text_in(name, chat, {.generation_prompt = true, .thinking = thinking});
    };
    const ThinkingSwitch has = chat_template(name).thinking;
    EXPECT_EQ(prompt(true) != prompt(false), has != ThinkingSwitch::none) << name;
    EXPECT_EQ(prompt({}), prompt(has != ThinkingSwitch::off_by_default)) << name;
  }
}

}  // namespace
}  // namespace trireme::text
