#include "data/sequences/pack_documents.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"

namespace trireme::data {
namespace {

std::vector<std::uint64_t> random_offsets(std::size_t documents, unsigned max_length,
                                          unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint64_t> offset{0};
  for (std::size_t i = 0; i < documents; ++i)
    offset.push_back(offset.back() + random() % (max_length + 1));
  return offset;
}

/// Computes first fit decreasing directly, as a bound: the oldest open sequence with enough space.
std::size_t first_fit_decreasing(const std::vector<std::uint64_t>& offset, std::size_t seq_len) {
  std::vector<std::size_t> lengths;
  for (std::size_t d = 0; d + 1 < offset.size(); ++d) {
    for (std::uint64_t left = offset[d + 1] - offset[d]; left > 0;
         left -= std::min<std::uint64_t>(left, seq_len)) {
      lengths.push_back(std::min<std::uint64_t>(left, seq_len));
    }
  }
  std::sort(lengths.rbegin(), lengths.rend());
  std::vector<std::size_t> rooms;
  for (const std::size_t length : lengths) {
    const auto fit =
        std::find_if(rooms.begin(), rooms.end(), [&](std::size_t room) { return room >= length; });
    if (fit == rooms.end()) {
      rooms.push_back(seq_len - length);
    } else {
      *fit -= length;
    }
  }
  return rooms.size();
}

/// Returns the number of sequences that hold `tokens` without padding, except in the last one.
std::uint64_t fewest(std::uint64_t tokens, std::int64_t seq_len) {
  const auto length = static_cast<std::uint64_t>(seq_len);
  return (tokens + length - 1) / length;
}

class PackDocuments : public ::testing::TestWithParam<std::tuple<int, unsigned>> {};

TEST_P(PackDocuments, HoldsEveryTokenOnceAndNoSequenceIsOverfull) {
  const auto [seq_len, max_length] = GetParam();
  const auto offset = random_offsets(seq_len < 16 ? 60 : 700, max_length, 3);

  const PackTable table = pack_documents(offset, seq_len);

  std::vector<int> seen(offset.back(), 0);
  for (std::size_t n = 0; n < table.num_sequences(); ++n) {
    std::uint64_t length = 0;
    std::uint64_t targets = 0;
    for (std::uint64_t s = table.seq_ptr[n]; s < table.seq_ptr[n + 1]; ++s) {
      ASSERT_GT(table.seg_len[s], 0U);
      ASSERT_LE(offset[table.seg_doc[s]] + table.seg_begin[s] + table.seg_len[s],
                offset[table.seg_doc[s] + 1]);
      for (std::uint32_t i = 0; i < table.seg_len[s]; ++i)
        ++seen[offset[table.seg_doc[s]] + table.seg_begin[s] + i];
      length += table.seg_len[s];
      targets += table.seg_len[s] - 1;
    }
    ASSERT_LE(length, static_cast<std::uint64_t>(seq_len));
    ASSERT_GT(length, 0U);
    ASSERT_EQ(table.targets[n], targets);
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<long>(seen.size()));
  EXPECT_LE(table.num_sequences(), first_fit_decreasing(offset, static_cast<std::size_t>(seq_len)));
}

INSTANTIATE_TEST_SUITE_P(Lengths, PackDocuments,
                         ::testing::Combine(::testing::Values(2, 3, 16, 63, 64, 65, 512, 5000),
                                            ::testing::Values(1U, 20U, 700U)));

TEST(PackDocuments, CutsLongDocumentsAndWastesLittle) {
  const PackTable table = pack_documents(std::vector<std::uint64_t>{0, 25}, 10);

  EXPECT_EQ(table.num_sequences(), 3U);
  EXPECT_EQ(table.seg_begin, (std::vector<std::uint32_t>{0, 10, 20}));
  EXPECT_EQ(table.seg_len, (std::vector<std::uint32_t>{10, 10, 5}));
  EXPECT_EQ(table.targets, (std::vector<std::uint32_t>{9, 9, 4}));
}

TEST(PackDocuments, TakesNoDocumentsAndRefusesBadLengths) {
  EXPECT_EQ(pack_documents(std::vector<std::uint64_t>{0}, 8).num_sequences(), 0U);
  EXPECT_THROW(pack_documents(std::vector<std::uint64_t>{0, 4}, 1), Error);
  EXPECT_THROW(pack_documents(std::vector<std::uint64_t>{0, 4}, (1 << 24) + 1), Error);
}

/// Returns lengths between `least` and `most`, uniformly distributed.
std::vector<std::uint64_t> uniform_offsets(std::size_t documents, unsigned least, unsigned most) {
  std::vector<std::uint64_t> offset = random_offsets(documents, most - least, 7);
  for (std::size_t i = 0; i < offset.size(); ++i) offset[i] += i * least;
  return offset;
}

TEST(PackDocuments, PadsShortDocumentsOfSimilarLengthsByLessThanAThousandth) {
  const auto offset = uniform_offsets(40'000, 40, 110);  // 3.0 M tokens
  for (const std::int64_t seq_len : {512, 2048, 4096}) {
    const std::uint64_t least = fewest(offset.back(), seq_len);

    const std::uint64_t sequences = pack_documents(offset, seq_len).num_sequences();

    // With any rule, the last sequence may be empty except for one document.
    EXPECT_LE(sequences, least + 1 + least / 1000) << seq_len;
  }
}

TEST(PackDocuments, AvoidsGapsThatNoNumberOfDocumentsFills) {
  // Documents have 69 to 75 tokens: 27 of them have 2,025 tokens, 28 have 1,932 to 2,100. Longest
  // first pads 1.6 %.
  const auto offset = uniform_offsets(40'000, 69, 75);
  const std::uint64_t least = fewest(offset.back(), 2048);

  EXPECT_LE(pack_documents(offset, 2048).num_sequences(), least + least / 100);
}

TEST(PackDocuments, FillsInDocumentOrderAmongEquals) {
  const PackTable table = pack_documents(std::vector<std::uint64_t>{0, 4, 8, 12, 16, 20}, 8);

  EXPECT_EQ(table.seg_doc, (std::vector<std::uint32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(table.seq_ptr, (std::vector<std::uint64_t>{0, 2, 4, 5}));
}

TEST(PackDocuments, TakesTheLongestSequenceThereIs) {
  constexpr std::int64_t kLongest = std::int64_t{1} << 24;
  const PackTable one = pack_documents(std::vector<std::uint64_t>{0, 5}, kLongest);
  EXPECT_EQ(one.num_sequences(), 1U);
  const PackTable cut =
      pack_documents(std::vector<std::uint64_t>{0, 3, 3 + 2 * kLongest + 7}, kLongest);
  EXPECT_EQ(cut.num_sequences(), 3U);
  EXPECT_EQ(cut.seg_len.size(), 4U);
}

/// A run with a sequence length that was not prepared resumes only if its sequences are made with
/// the same rule.
TEST(PackDocuments, HasTheSequencesThatItsRuleNumberStandsFor) {
  static_assert(kPackingRule == 2);
  const auto offset = random_offsets(3000, 900, 11);
  std::string text;
  for (const std::int64_t seq_len : {64, 1000, 4096}) {
    const PackTable table = pack_documents(offset, seq_len);
    for (const std::uint64_t value : table.seq_ptr) text += formatted("{} ", value);
    for (const std::uint32_t value : table.seg_doc) text += formatted("{} ", value);
    for (const std::uint32_t value : table.seg_begin) text += formatted("{} ", value);
  }

  EXPECT_EQ(xxh3_128_hex(text), "4eda62ca515936fbfc64702828013ea0")
      << "raise kPackingRule, then take this hash";
}

}  // namespace
}  // namespace trireme::data
