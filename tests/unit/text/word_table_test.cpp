#include "text/learn/word_table.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "unit/text/text_samples.hpp"

namespace trireme::text {
namespace {

using Counts = std::map<std::string, std::uint64_t>;

Counts counts_of(const WordTable& table) {
  Counts counts;
  table.for_each([&](std::string_view word, std::uint64_t count) {
    EXPECT_TRUE(counts.emplace(word, count).second) << "twice: " << word;
  });
  return counts;
}

/// Words of all lengths around the limit of a slot, with few letters and with zero bytes.
std::string random_word(samples::Rng& rng) {
  std::string word;
  const std::size_t length = rng() % 3 == 0 ? 1 + rng() % 40 : 1 + rng() % 3;
  while (word.size() < length) word += std::string("ab\0\xFF", 4)[rng() % 4];
  return word;
}

TEST(WordTable, CountsAsAMapDoesWhileItGrows) {
  samples::Rng rng(51);
  WordTable table;
  Counts expected;
  std::uint64_t bytes = 0;
  for (int i = 0; i < 60000; ++i) {
    const std::string word = random_word(rng);
    const std::uint64_t count = rng() % 8 == 0 ? rng() : 1;
    if (count == 0) continue;
    table.add(word, count);
    bytes += expected[word] == 0 ? word.size() : 0;
    expected[word] += count;
    if (i % 9973 == 0) {
      table.flush();
      ASSERT_EQ(counts_of(table), expected) << i;
    }
  }
  table.flush();

  ASSERT_GT(expected.size(), 10000U);
  EXPECT_EQ(table.size(), expected.size());
  EXPECT_EQ(table.bytes(), bytes);
  EXPECT_EQ(counts_of(table), expected);
}

TEST(WordTable, TellsLongWordsFromShortOnesWithTheSameBytes) {
  WordTable table;
  for (std::size_t length = 1; length <= 300; ++length) table.add(std::string(length, 'a'), length);
  table.flush();

  EXPECT_EQ(table.size(), 300U);
  table.for_each(
      [](std::string_view word, std::uint64_t count) { EXPECT_EQ(word.size(), count) << word; });
}

TEST(WordTable, GivesWordsByDescendingCount) {
  samples::Rng rng(52);
  WordTable table;
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t large = std::numeric_limits<std::uint64_t>::max() / 4000;
    table.add(random_word(rng), rng() % 50 == 0 ? large : 1 + rng() % 5000);
  }
  table.flush();

  std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
  Counts seen;
  table.for_each_by_count([&](std::string_view word, std::uint64_t count) {
    EXPECT_LE(count, last);
    last = count;
    seen.emplace(word, count);
  });
  EXPECT_EQ(seen, counts_of(table));
}

TEST(WordTable, IgnoresNothingness) {
  WordTable table;
  table.add("", 3);
  table.add("a", 0);
  table.flush();

  EXPECT_EQ(table.size(), 0U);
  EXPECT_TRUE(counts_of(table).empty());
}

}  // namespace
}  // namespace trireme::text
