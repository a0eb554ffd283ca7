#include <gtest/gtest.h>

#include "support/token_ids.hpp"
#include "text/unicode/utf8.hpp"
#include "unit/text/text_samples.hpp"

namespace trireme::text {
namespace {

TEST(StreamDecoder, NeverCutsACharacter) {
  const Tokenizer tokenizer = samples::small_tokenizer();
  samples::Rng rng(5);
  for (int i = 0; i < 300; ++i) {
    const std::string text = samples::random_text(rng, 20);
    StreamDecoder stream(tokenizer);
    std::string joined;
    for (const std::uint32_t id : tokenizer.encode(text)) {
      const std::string piece = stream.push(id);
      EXPECT_NO_THROW(check_utf8(piece, "piece"));
      EXPECT_EQ(piece.find("\xEF\xBF\xBD"), text.find("\xEF\xBF\xBD") == std::string::npos
                                                ? std::string::npos
                                                : piece.find("\xEF\xBF\xBD"));
      joined += piece;
    }
    joined += stream.finish();
    ASSERT_EQ(joined, text);
  }
}

TEST(StreamDecoder, EqualsDecodeOnAnyIds) {
  const Tokenizer tokenizer = samples::small_tokenizer();
  samples::Rng rng(6);
  for (int i = 0; i < 500; ++i) {
    std::vector<std::uint32_t> ids(rng() % 30);
    for (auto& id : ids) id = rng() % 300;  // mostly single bytes
    for (const bool skip : {false, true}) {
      StreamDecoder stream(tokenizer, skip);
      std::string joined;
      for (const std::uint32_t id : ids) joined += stream.push(id);
      joined += stream.finish();
      ASSERT_EQ(joined, tokenizer.decode(ids, skip));
    }
  }
}

TEST(StreamDecoder, HoldsBackAnEmojiUntilItIsWhole) {
  const Tokenizer tokenizer = samples::small_tokenizer();
  const auto id_of = [&](const char* bytes) { return id_of_bytes(tokenizer, bytes); };
  StreamDecoder stream(tokenizer);

  EXPECT_EQ(stream.push(id_of("\xF0")), "");
  EXPECT_EQ(stream.push(id_of("\x9F")), "");
  EXPECT_EQ(stream.push(id_of("\x90")), "");
  EXPECT_EQ(stream.push(id_of("\x8E")), "🐎");
  EXPECT_EQ(stream.push(id_of("\xF0")), "");
  EXPECT_EQ(stream.push(id_of("a")),
            "\uFFFD"
            "a");
  EXPECT_EQ(stream.push(id_of("\xF0")), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

}  // namespace
}  // namespace trireme::text
