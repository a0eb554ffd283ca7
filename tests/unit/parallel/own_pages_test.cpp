#include "device/own_pages.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "core/error.hpp"
#include "device/memory_count.hpp"
#include "device/torch_errors.hpp"
#include "support/resident.hpp"

namespace trireme::parallel {
namespace {

constexpr std::int64_t kMebi = std::int64_t{1} << 20;

using testing::resident_bytes;

TEST(OwnPages, AreZerosOfEveryLength) {
  for (const std::int64_t count :
       {std::int64_t{0}, std::int64_t{5}, kMebi - 1, kMebi, 3 * kMebi + 7}) {
    const at::Tensor numbers = device::own_zero_pages(count, at::kFloat);
    ASSERT_EQ(numbers.sizes(), at::IntArrayRef({count}));
    EXPECT_EQ(numbers.count_nonzero().item<std::int64_t>(), 0) << count;
  }
}

TEST(OwnPages, LargeOnesBeginWhereAHugePageMay) {
  const at::Tensor numbers = device::own_pages(3 * kMebi + 7, at::kFloat);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(numbers.data_ptr()) % (2 * kMebi), 0U);
}

TEST(OwnPages, GoBackToTheSystem) {
  const std::int64_t before = resident_bytes();
  {
    const at::Tensor numbers = device::own_pages(64 * kMebi, at::kByte).fill_(1);
    const at::Tensor behind = at::ones({1000});  // would keep the heap from shrinking
    EXPECT_GT(resident_bytes() - before, 60 * kMebi);
  }
  EXPECT_LT(resident_bytes() - before, 8 * kMebi);
}

TEST(OwnPages, HaveMemoryUnderThemBeforeTheyAreWritten) {
  const at::Tensor numbers = device::own_pages(64 * kMebi, at::kByte);
  numbers[3].fill_(7);
  const std::int64_t before = resident_bytes();
  const at::Tensor some = numbers.narrow(0, 1, 32 * kMebi);
  ASSERT_EQ(device::back_with_memory(some), device::Backed::now);
  EXPECT_GT(resident_bytes() - before, 28 * kMebi);
  EXPECT_LT(resident_bytes() - before, 36 * kMebi);
  EXPECT_EQ(device::back_with_memory(some), device::Backed::already);
  EXPECT_EQ(numbers[3].item<std::uint8_t>(), 7);
}

TEST(OwnPages, AreCounted) {
  const device::MemoryCount count;
  {
    const at::Tensor numbers = device::own_pages(2 * kMebi, at::kFloat);
    EXPECT_EQ(count.live_bytes(), 8 * kMebi);
  }
  EXPECT_EQ(count.live_bytes(), 0);
}

TEST(OwnPages, TooManyAreAResource) {
  try {
    device::with_torch_errors([] { return device::own_pages(std::int64_t{1} << 58, at::kFloat); });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource) << error.what();
  }
}

}  // namespace
}  // namespace trireme::parallel
