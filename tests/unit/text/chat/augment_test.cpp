#include "text/chat/augment.hpp"

#include <gtest/gtest.h>

#include <map>

#include "unit/text/chat/chats.hpp"

namespace trireme::text {
namespace {

using samples::chat_of;
using enum Role;

const ChatAugment kMinimind{.add_system = 0.2,
                            .drop_empty_think = 0.8,
                            .system_prompts = default_system_prompts(),
                            .seed = 5};

std::string added(const ChatAugment& augment, const ChatDraw& draw) {
  Conversation chat = chat_of({{user, "q"}, {assistant, "a"}});
  add_system_prompt(augment, draw, chat);
  return chat.messages.size() == 3 ? chat.messages[0].content : "";
}

TEST(Augment, HitsItsProbabilities) {
  const int n = 20000;
  int systems = 0;
  int dropped = 0;
  std::map<std::string, int> prompts;
  for (int i = 0; i < n; ++i) {
    const ChatDraw draw{.offset = std::uint64_t(i) * 97};
    const std::string prompt = added(kMinimind, draw);
    systems += !prompt.empty();
    if (!prompt.empty()) ++prompts[prompt];
    dropped += drops_empty_think(kMinimind, draw);
  }

  EXPECT_NEAR(systems, 0.2 * n, 5 * 57);  // 5 standard deviations
  EXPECT_NEAR(dropped, 0.8 * n, 5 * 57);
  EXPECT_EQ(prompts.size(), 10U);
  for (const auto& [prompt, count] : prompts) EXPECT_NEAR(count, 400, 5 * 20) << prompt;
}

TEST(Augment, DependsOnRecordCopySideAndSeedAlone) {
  const auto draws = [](const ChatAugment& augment, ChatDraw draw) {
    std::string text;
    for (std::uint64_t i = 0; i < 200; ++i) {
      draw.offset = i;
      text += added(augment, draw) + (drops_empty_think(augment, draw) ? "-" : "+");
    }
    return text;
  };
  ChatAugment other_seed = kMinimind;
  other_seed.seed = 6;
  const std::string base = draws(kMinimind, {});

  EXPECT_EQ(draws(kMinimind, {}), base);
  EXPECT_NE(draws(other_seed, {}), base);
  EXPECT_NE(draws(kMinimind, {.source = 1}), base);
  EXPECT_NE(draws(kMinimind, {.copy = 1}), base);
  EXPECT_NE(draws(kMinimind, {.side = 1}), base);
}

TEST(Augment, KeepsExistingSystemMessagesAndTools) {
  ChatAugment always = kMinimind;
  always.add_system = 1;
  Conversation with_system = chat_of({{system, "s"}, {assistant, "a"}});
  Conversation with_tools = chat_of({{user, "q"}, {assistant, "a"}});
  with_tools.declares_tools = true;
  add_system_prompt(always, {}, with_system);
  add_system_prompt(always, {}, with_tools);

  EXPECT_EQ(with_system.messages.size(), 2U);
  EXPECT_EQ(with_tools.messages.size(), 2U);
  EXPECT_NE(added(always, {}), "");
  EXPECT_EQ(added({}, {}), "");
  EXPECT_FALSE(drops_empty_think({}, {}));
}

}  // namespace
}  // namespace trireme::text
