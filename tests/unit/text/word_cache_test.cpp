#include "text/bpe/word_cache.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "unit/text/text_samples.hpp"

namespace trireme::text {
namespace {

using Ids = std::vector<std::uint32_t>;

Ids look_up(const WordCache& cache, const std::string& piece) {
  std::array<std::uint32_t, 300> out{};
  const std::size_t count = cache.find(piece, out.data());
  return {out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// Returns ids that depend on the whole word, so that a confusion is visible.
Ids ids_of(const std::string& piece) {
  Ids ids(1 + piece.size() / 3);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::uint32_t>(std::hash<std::string>()(piece) + i);
  return ids;
}

TEST(WordCache, ReturnsWhatWasKept) {
  WordCache cache;
  for (std::size_t size = 1; size <= WordCache::kMaxBytes; ++size) {
    const std::string piece(size, 'x');
    EXPECT_EQ(look_up(cache, piece), Ids{}) << size;
    cache.insert(piece, ids_of(piece));
    EXPECT_EQ(look_up(cache, piece), ids_of(piece)) << size;
  }
}

TEST(WordCache, DistinguishesWordsThatDifferInOneByte) {
  WordCache cache;
  for (std::size_t size = 1; size < 20; ++size) {
    const std::string piece(size, '\0');
    cache.insert(piece, ids_of(piece));
    for (std::size_t i = 0; i < size; ++i) {
      std::string other = piece;
      other[i] = 'y';
      EXPECT_EQ(look_up(cache, other), Ids{}) << size << ' ' << i;
    }
    EXPECT_EQ(look_up(cache, piece + '\0'), Ids{});
  }
}

TEST(WordCache, DoesNotKeepLongPieces) {
  WordCache cache;
  const std::string piece(WordCache::kMaxBytes + 1, 'x');

  cache.insert(piece, ids_of(piece));

  EXPECT_EQ(look_up(cache, piece), Ids{});
}

TEST(WordCache, NeverGivesWrongIdsWhenItOverflows) {
  WordCache cache;
  samples::Rng rng(3);
  int found = 0;
  for (int i = 0; i < 400000; ++i) {  // several times the size of the ring and both tables
    const std::string piece = std::to_string(rng() % 150000) + std::string(rng() % 120, 'z');
    const Ids ids = look_up(cache, piece);
    if (ids.empty()) {
      cache.insert(piece, ids_of(piece));
    } else {
      ++found;
      ASSERT_EQ(ids, ids_of(piece)) << piece;
    }
  }
  EXPECT_GT(found, 100);
}

TEST(WordCache, ForgetsAnEntryOnceItsIdsAreOverwritten) {
  WordCache cache;
  std::vector<std::string> first;
  for (int i = 0; i < 8; ++i) {
    first.push_back("first " + std::to_string(i) + std::string(240, 'x'));
    cache.insert(first.back(), ids_of(first.back()));
  }
  int forgotten = 0;
  for (int i = 0; i < 20000;
       ++i) {  // fills the ring once and overwrites its start, ids before bytes
    const std::string filler = std::to_string(i) + std::string(245, 'y');
    cache.insert(filler, ids_of(filler));
    for (const std::string& piece : first) {
      const Ids ids = look_up(cache, piece);
      if (ids.empty()) {
        ++forgotten;
      } else {
        ASSERT_EQ(ids, ids_of(piece)) << i;
      }
    }
  }
  EXPECT_GT(forgotten, 0);
}

}  // namespace
}  // namespace trireme::text
