#include "data/best_fit.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/error.hpp"

namespace trireme {
namespace {

std::vector<std::uint64_t> random_offsets(std::size_t documents,
                                          unsigned max_length,
                                          unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint64_t> offset{0};
  for (std::size_t i = 0; i < documents; ++i)
    offset.push_back(offset.back() + random() % (max_length + 1));
  return offset;
}

/// Best fit decreasing said plainly: the open sequence with the least room that suffices, the
/// newest of equals.
std::size_t plain_best_fit(const std::vector<std::uint64_t>& offset, std::size_t seq_len) {
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
    auto best = rooms.end();
    for (auto it = rooms.begin(); it != rooms.end(); ++it) {
      if (*it >= length && (best == rooms.end() || *it < *best)) best = it;
    }
    if (best == rooms.end()) {
      rooms.push_back(seq_len - length);
    } else {
      *best -= length;
    }
  }
  return rooms.size();
}

class BestFit : public ::testing::TestWithParam<std::tuple<int, unsigned>> {};

TEST_P(BestFit, HoldsEveryTokenOnceAndNoSequenceIsOverfull) {
  const auto [seq_len, max_length] = GetParam();
  const auto offset = random_offsets(seq_len < 16 ? 60 : 700, max_length, 3);

  const PackTable table = pack_best_fit(offset, seq_len);

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
  EXPECT_EQ(table.num_sequences(), plain_best_fit(offset, static_cast<std::size_t>(seq_len)));
}

INSTANTIATE_TEST_SUITE_P(Lengths,
                         BestFit,
                         ::testing::Combine(::testing::Values(2, 3, 16, 63, 64, 65, 512, 5000),
                                            ::testing::Values(1U, 20U, 700U)));

TEST(BestFit, CutsLongDocumentsAndWastesLittle) {
  const PackTable table = pack_best_fit(std::vector<std::uint64_t>{0, 25}, 10);

  EXPECT_EQ(table.num_sequences(), 3U);
  EXPECT_EQ(table.seg_begin, (std::vector<std::uint32_t>{0, 10, 20}));
  EXPECT_EQ(table.seg_len, (std::vector<std::uint32_t>{10, 10, 5}));
  EXPECT_EQ(table.targets, (std::vector<std::uint32_t>{9, 9, 4}));
}

TEST(BestFit, TakesNoDocumentsAndRefusesBadLengths) {
  EXPECT_EQ(pack_best_fit(std::vector<std::uint64_t>{0}, 8).num_sequences(), 0U);
  EXPECT_THROW(pack_best_fit(std::vector<std::uint64_t>{0, 4}, 1), Error);
  EXPECT_THROW(pack_best_fit(std::vector<std::uint64_t>{0, 4}, (1 << 24) + 1), Error);
}

}  // namespace
}  // namespace trireme
