#include "parallel/slice.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "core/error.hpp"

namespace trireme::parallel {
namespace {

using Sizes = std::vector<std::int64_t>;

/// Returns the global row-major index of every element of a slice, in the order of the slice, by
/// definition.
std::vector<std::int64_t> global_indices(const Sizes& shape, const Slice& slice) {
  std::vector<std::int64_t> indices;
  for (std::int64_t flat = slice.flat_begin; flat < slice.flat_end; ++flat) {
    std::int64_t rest = flat;
    std::int64_t global = 0;
    std::int64_t stride = 1;
    for (std::size_t dim = shape.size(); dim-- > 0;) {
      global += (slice.offset[dim] + rest % slice.extent[dim]) * stride;
      rest /= slice.extent[dim];
      stride *= shape[dim];
    }
    indices.push_back(global);
  }
  return indices;
}

Slice random_slice(const Sizes& shape, std::mt19937& random) {
  Slice slice = Slice::whole(shape);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (pick(0, 2) == 0) continue;  // whole dimensions matter: they merge rows
    slice.offset[dim] = pick(0, shape[dim]);
    slice.extent[dim] = pick(0, shape[dim] - slice.offset[dim]);
  }
  slice.flat_end = slice.rectangle_count();
  if (pick(0, 1) == 0) {
    slice.flat_begin = pick(0, slice.flat_end);
    slice.flat_end = pick(slice.flat_begin, slice.flat_end);
  }
  return slice;
}

TEST(Slice, WholeOfScalarHasOneElement) {
  EXPECT_EQ(Slice::whole({}).count(), 1);
  EXPECT_EQ(intersect({}, Slice::whole({}), Slice::whole({})).size(), 1U);
}

TEST(Slice, WholeOfEmptyTensorMeetsNothing) {
  const Sizes shape{3, 0, 2};
  EXPECT_TRUE(intersect(shape, Slice::whole(shape), Slice::whole(shape)).empty());
}

TEST(Slice, RowsOfAMatrixAreOneRun) {
  const Sizes shape{6, 4};
  const Slice rows{{2, 0}, {3, 4}, 0, 12};
  const auto runs = intersect(shape, Slice::whole(shape), rows);
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].source_index, 8);
  EXPECT_EQ(runs[0].target_index, 0);
  EXPECT_EQ(runs[0].count, 12);
}

TEST(Slice, ColumnsOfAMatrixAreOneRunPerRow) {
  const Sizes shape{3, 4};
  const Slice columns{{0, 2}, {3, 2}, 0, 6};
  const auto runs = intersect(shape, Slice::whole(shape), columns);
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[1].source_index, 6);
  EXPECT_EQ(runs[1].target_index, 2);
}

TEST(Slice, RunsOfRandomSlicesAreExactlyTheCommonElements) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 3000; ++trial) {
    Sizes shape(static_cast<std::size_t>(trial % 5));
    for (std::int64_t& size : shape)
      size = std::uniform_int_distribution<std::int64_t>(1, 5)(random);
    const Slice source = random_slice(shape, random);
    const Slice target = random_slice(shape, random);
    const auto source_globals = global_indices(shape, source);
    const auto target_globals = global_indices(shape, target);
    std::map<std::int64_t, std::int64_t> position;
    for (std::size_t i = 0; i < source_globals.size(); ++i)
      position[source_globals[i]] = static_cast<std::int64_t>(i);
    std::vector<std::pair<std::int64_t, std::int64_t>> expected;
    for (std::size_t i = 0; i < target_globals.size(); ++i) {
      const auto found = position.find(target_globals[i]);
      if (found != position.end()) expected.emplace_back(found->second, i);
    }

    std::vector<std::pair<std::int64_t, std::int64_t>> got;
    for (const SliceRun& run : intersect(shape, source, target)) {
      EXPECT_GT(run.count, 0);
      for (std::int64_t i = 0; i < run.count; ++i)
        got.emplace_back(run.source_index + i, run.target_index + i);
    }

    ASSERT_EQ(got, expected) << "trial " << trial;
    ASSERT_EQ(meet(shape, source, target), !expected.empty()) << "trial " << trial;
  }
}

TEST(Slice, FarFlatRangeOfAHugeTensorIsFoundWithoutWalkingIt) {
  const Sizes shape{1LL << 40, 2};
  const Slice columns{{0, 1}, {1LL << 40, 1}, (1LL << 40) - 3, 1LL << 40};
  EXPECT_EQ(intersect(shape, Slice::whole(shape), columns).size(),
            3U);  // a loop over 2^40 rows would time out
}

TEST(Slice, MeetingDoesNotDependOnTheNumberOfRows) {
  constexpr std::int64_t kRows = std::int64_t{1} << 50;
  const std::vector<std::int64_t> shape{kRows, 2};
  const Slice whole = Slice::whole(shape);
  const Slice left{{0, 0}, {kRows, 1}, 0, kRows};
  const Slice right{{0, 1}, {kRows, 1}, 0, kRows};
  const Slice late_right{{0, 1}, {kRows, 1}, kRows - 1, kRows};
  const Slice all_but_last{{0, 0}, {kRows, 2}, 0, 2 * kRows - 1};

  EXPECT_TRUE(meet(shape, whole, left));
  EXPECT_TRUE(meet(shape, right, whole));
  EXPECT_FALSE(meet(shape, left, right));
  EXPECT_FALSE(meet(shape, late_right, all_but_last));
  EXPECT_TRUE(meet(shape, late_right, whole));
}

TEST(Slice, RectangleOutsideTheTensorIsRefused) {
  const Sizes shape{4, 4};
  const Slice outside{{2, 0}, {3, 4}, 0, 12};
  EXPECT_THROW((void)intersect(shape, Slice::whole(shape), outside), Error);
}

}  // namespace
}  // namespace trireme::parallel
