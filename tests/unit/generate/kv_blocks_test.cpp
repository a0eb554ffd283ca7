/// Tests the blocks of the cache and their users, and the conversion of tokens to text.

#include "generate/cache/kv_blocks.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "generate/answer_text.hpp"
#include "unit/text/text_samples.hpp"

namespace trireme::generate {
namespace {

using Array = std::array<std::uint32_t, 16>;

Array tokens_from(std::uint32_t first) {
  Array tokens{};
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(KvBlocks, AreSharedOnlyUnderEqualPrefixHashes) {
  KvBlocks blocks(4);
  const auto a = blocks.take().value();
  const auto b = blocks.take().value();
  EXPECT_EQ(a, 0);
  EXPECT_EQ(b, 1);
  const auto chain = blocks.publish(a, KvBlocks::kStart, tokens_from(10));
  const auto end = blocks.publish(b, chain, tokens_from(50));

  EXPECT_FALSE(blocks.share(KvBlocks::kStart, tokens_from(50)));
  EXPECT_FALSE(blocks.share(chain, tokens_from(51)));
  const auto found = blocks.share(KvBlocks::kStart, tokens_from(10));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->block, a);
  EXPECT_EQ(found->chain, chain);
  EXPECT_EQ(blocks.share(chain, tokens_from(50))->chain, end);
  // A second block with the same content is not shared and has the same prefix hash.
  const auto c = blocks.take().value();
  EXPECT_EQ(blocks.publish(c, KvBlocks::kStart, tokens_from(10)), chain);
  EXPECT_EQ(blocks.used(), 3);
}

TEST(KvBlocks, UnusedBlocksStayUntilTheirMemoryIsNeeded) {
  KvBlocks blocks(2);
  const auto a = blocks.take().value();
  const auto b = blocks.take().value();
  const auto chain = blocks.publish(a, KvBlocks::kStart, tokens_from(0));
  blocks.publish(b, chain, tokens_from(16));
  EXPECT_FALSE(blocks.take());
  blocks.give_back(b);
  blocks.give_back(a);
  EXPECT_EQ(blocks.used(), 0);
  EXPECT_EQ(blocks.available(), 2);

  EXPECT_EQ(blocks.share(KvBlocks::kStart, tokens_from(0))->block, a);
  EXPECT_EQ(blocks.take().value(), b) << "the one unused, although it was published";
  EXPECT_FALSE(blocks.share(chain, tokens_from(16)));
  blocks.give_back(a);
  EXPECT_TRUE(blocks.share(KvBlocks::kStart, tokens_from(0)));
}

TEST(KvBlocks, ForgetsWhatWasNeverComputed) {
  KvBlocks blocks(3);
  const auto a = blocks.take().value();
  const auto b = blocks.take().value();
  blocks.publish(a, KvBlocks::kStart, tokens_from(0));
  blocks.publish(b, KvBlocks::kStart, tokens_from(100));
  blocks.give_back(b);
  blocks.withdraw_published();
  EXPECT_FALSE(blocks.share(KvBlocks::kStart, tokens_from(0)));
  EXPECT_FALSE(blocks.share(KvBlocks::kStart, tokens_from(100)));
  blocks.give_back(a);
  EXPECT_EQ(blocks.available(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(blocks.take());
}

/// Returns all parts of a text, and the kind of each.
struct Pieces {
  std::string text;
  std::vector<std::string> list;
  bool stopped = false;
};

Pieces pieces_of(const std::string& text, std::vector<std::string> stop) {
  static const text::Tokenizer tokenizer = text::samples::small_tokenizer();
  AnswerText answer(tokenizer, std::move(stop), true);
  Pieces pieces;
  const auto take = [&](const std::string& piece) {
    pieces.text += piece;
    pieces.list.push_back(piece);
  };
  for (const std::uint32_t id : tokenizer.encode(text)) take(answer.push(id));
  take(answer.finish());
  pieces.stopped = answer.stopped();
  return pieces;
}

TEST(AnswerText, StopsBeforeTheFirstStopString) {
  const std::string text = "the other return of the world, 你好，世界。";
  EXPECT_EQ(pieces_of(text, {}).text, text);
  EXPECT_FALSE(pieces_of(text, {"nowhere", "世界。!"}).stopped);
  EXPECT_EQ(pieces_of(text, {"nowhere", "世界。!"}).text, text);
  for (const std::string stop : {"world", "t", "return of", "，世", "。", text.c_str()}) {
    const Pieces pieces = pieces_of(text, {stop});
    EXPECT_TRUE(pieces.stopped) << stop;
    EXPECT_EQ(pieces.text, text.substr(0, text.find(stop))) << stop;
  }
  EXPECT_EQ(pieces_of(text, {"world", "other", "of"}).text, "the ");
  EXPECT_EQ(pieces_of("aab aaab", {"aaab"}).text, "aab ");
}

TEST(AnswerText, PartsAreWholeCharacters) {
  const std::string text = "👍🏽 é 世 界\u200B";
  std::size_t shown = 0;
  for (const std::string& piece : pieces_of(text, {}).list) {
    shown += piece.size();
    if (shown == text.size()) break;
    EXPECT_NE(text[shown] & 0xC0, 0x80) << "cut at byte " << shown;
  }
  EXPECT_EQ(shown, text.size());
  // The last token is only the first byte of a character.
  static const text::Tokenizer tokenizer = text::samples::small_tokenizer();
  AnswerText answer(tokenizer, {}, true);
  for (std::uint32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.token_bytes(id) != "\xE4") continue;
    EXPECT_EQ(answer.push(id), "");
    EXPECT_EQ(answer.finish(), "\uFFFD");
    return;
  }
  FAIL() << "no such token";
}

}  // namespace
}  // namespace trireme::generate
