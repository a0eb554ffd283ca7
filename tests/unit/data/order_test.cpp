#include "data/order/order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.hpp"

namespace trireme::data {
namespace {

TEST(SampleOrder, IsAPermutationInEveryEpochForManySizes) {
  for (std::uint64_t size = 1; size <= 300; size += (size < 70 ? 1 : 37)) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const SampleOrder order(size, seed);
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<bool> seen(size, false);
        for (std::uint64_t k = 0; k < size; ++k) {
          const SampleLocation place = order.locate(epoch * size + k);

          ASSERT_EQ(place.epoch, epoch);
          ASSERT_LT(place.position, size);
          ASSERT_FALSE(seen[place.position]) << "size " << size << " seed " << seed;
          seen[place.position] = true;
        }
      }
    }
  }
}

TEST(SampleOrder, WithChunksIsAPermutationInEveryEpoch) {
  for (const std::uint64_t size : {1, 2, 15, 16, 17, 300, 1000}) {
    for (const std::uint64_t chunk : {1, 7, 16, 400}) {
      for (const std::uint64_t window : {1, 3, 64}) {
        const SampleOrder order(size, {.seed = 3, .chunk = chunk, .window = window});
        std::vector<bool> seen(size, false);
        for (std::uint64_t k = 0; k < size; ++k) {
          const SampleLocation place = order.locate(2 * size + k);
          ASSERT_EQ(place.epoch, 2U);
          ASSERT_LT(place.position, size);
          ASSERT_FALSE(seen[place.position]) << size << " in chunks of " << chunk;
          seen[place.position] = true;
        }
      }
    }
  }
}

TEST(SampleOrder, WithChunksReadsFewPlacesAtATime) {
  constexpr std::uint64_t kChunk = 64;
  const SampleOrder order(1 << 20, {.seed = 3, .chunk = kChunk, .window = 8});
  std::vector<std::uint64_t> chunks;
  std::uint64_t in_file_order = 0;
  for (std::uint64_t k = 0; k < kChunk * 8; ++k) {
    chunks.push_back(order.locate(k).position / kChunk);
    in_file_order += k != 0 && order.locate(k).position == order.locate(k - 1).position + 1;
  }
  std::sort(chunks.begin(), chunks.end());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());

  EXPECT_EQ(chunks.size(), 8U);
  EXPECT_LT(in_file_order, 20U) << "shuffled inside the window: about 1 of 512 by chance";
}

TEST(SampleOrder, StreamsOfOneSeedDiffer) {
  const SampleOrder one(1000, {.seed = 1});
  const SampleOrder two(1000, {.seed = 1, .stream = "/1/0"});
  int equal = 0;
  for (std::uint64_t k = 0; k < 1000; ++k)
    equal += one.locate(k).position == two.locate(k).position;

  EXPECT_LT(equal, 10);
}

TEST(SampleOrder, WithoutShuffleCountsUp) {
  const SampleOrder order(5, 1, false);

  EXPECT_EQ(order.locate(3).position, 3U);
  EXPECT_EQ(order.locate(12).position, 2U);
  EXPECT_EQ(order.locate(12).epoch, 2U);
}

/// Returns chi-square of "where does index k land" in 16 x 16 cells: about 255 - 31 degrees of
/// freedom, mean 225, sd 21.
TEST(SampleOrder, SpreadsNeighboursEvenly) {
  constexpr std::uint64_t kSize = 65537;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const SampleOrder order(kSize, seed);
    std::vector<double> cells(256, 0);
    for (std::uint64_t k = 0; k < kSize; ++k) {
      cells[(k * 16 / kSize) * 16 + order.locate(k).position * 16 / kSize] += 1;
    }
    double chi_square = 0;
    for (const double count : cells)
      chi_square += std::pow(count - kSize / 256.0, 2) / (kSize / 256.0);

    EXPECT_GT(chi_square, 110) << "seed " << seed;
    EXPECT_LT(chi_square, 340) << "seed " << seed;
  }
}

TEST(SampleOrder, SeedsAndEpochsDiffer) {
  const SampleOrder one(1000, 1);
  const SampleOrder two(1000, 2);
  int equal_seed = 0;
  int equal_epoch = 0;
  int fixed = 0;
  for (std::uint64_t k = 0; k < 1000; ++k) {
    equal_seed += one.locate(k).position == two.locate(k).position;
    equal_epoch += one.locate(k).position == one.locate(1000 + k).position;
    fixed += one.locate(k).position == k;
  }

  EXPECT_LT(equal_seed, 10);  // expected 1 of 1000
  EXPECT_LT(equal_epoch, 10);
  EXPECT_LT(fixed, 10);
}

TEST(SampleOrder, HandlesHugeSetsAndRefusesEmptyOnes) {
  const SampleOrder order((std::uint64_t{1} << 61) + 12345, 7);

  EXPECT_LT(order.locate(99).position, order.num_samples());
  EXPECT_THROW(SampleOrder(0, 1), Error);
}

/// These values come from a second implementation (Python). A change here changes the data order of
/// resumed runs.
TEST(SampleOrder, NeverChanges) {
  const SampleOrder order(1000003, 42);

  EXPECT_EQ(order.locate(0).position, 420597U);
  EXPECT_EQ(order.locate(1).position, 816379U);
  EXPECT_EQ(order.locate(1000003).position, 66211U);
}

}  // namespace
}  // namespace trireme::data
