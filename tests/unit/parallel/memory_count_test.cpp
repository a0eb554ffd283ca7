#include "device/memory_count.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <thread>
#include <vector>

namespace trireme::parallel {
namespace {

constexpr std::int64_t kKiB = 1024;

at::Tensor bytes(std::int64_t size) {
  return at::empty({size}, at::kByte);
}

TEST(MemoryCount, CountsWhatLivesAndTheMostThatLived) {
  const device::MemoryCount count;
  EXPECT_EQ(count.live_bytes(), 0);

  at::Tensor first = bytes(kKiB);
  at::Tensor second = bytes(3 * kKiB);
  const at::Tensor view = first.narrow(0, 7, 9);
  EXPECT_EQ(count.live_bytes(), 4 * kKiB) << "a view is no allocation";

  second.reset();
  EXPECT_EQ(count.live_bytes(), kKiB);
  first.reset();
  EXPECT_EQ(count.live_bytes(), kKiB) << "the view keeps it";
  EXPECT_EQ(count.peak_bytes(), 4 * kKiB);
}

TEST(MemoryCount, ThePeakBeginsAgainAtWhatLives) {
  device::MemoryCount count;
  const at::Tensor kept = bytes(kKiB);
  bytes(8 * kKiB).reset();

  count.reset_peak();
  EXPECT_EQ(count.peak_bytes(), kKiB);
  bytes(2 * kKiB).reset();

  EXPECT_EQ(count.peak_bytes(), 3 * kKiB);
}

TEST(MemoryCount, MemoryOfBeforeAndOfOtherThreadsIsNotItsOwn) {
  at::Tensor before = bytes(kKiB);
  ::testing::internal::CaptureStderr();
  const device::MemoryCount count;
  before.reset();
  EXPECT_EQ(count.live_bytes(), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "no words of the allocator's";

  at::Tensor of_other;
  std::thread([&] { of_other = bytes(kKiB); }).join();
  EXPECT_EQ(count.live_bytes(), 0);
  of_other.reset();
  EXPECT_EQ(count.live_bytes(), 0);
}

TEST(MemoryCount, AnAddressThatComesAgainCountsOnce) {
  const device::MemoryCount count;
  at::Tensor here = bytes(kKiB);
  // Another thread frees the tensor unnoticed. Its address is allocated again, sooner or later.
  std::thread([&] { here.reset(); }).join();
  std::vector<at::Tensor> again;
  for (int i = 0; i < 64; ++i) again.push_back(bytes(kKiB));
  EXPECT_LE(count.live_bytes(), 65 * kKiB);
  again.clear();
  EXPECT_LE(count.live_bytes(), kKiB);
  EXPECT_GE(count.live_bytes(), 0);
}

TEST(MemoryCount, NestedCountsEachSeeAll) {
  const device::MemoryCount outer;
  const at::Tensor first = bytes(kKiB);
  {
    const device::MemoryCount inner;
    const at::Tensor second = bytes(2 * kKiB);
    EXPECT_EQ(inner.live_bytes(), 2 * kKiB);
    EXPECT_EQ(outer.live_bytes(), 3 * kKiB);
  }
  EXPECT_EQ(outer.live_bytes(), kKiB);
  EXPECT_EQ(outer.peak_bytes(), 3 * kKiB);
}

TEST(MemoryCount, SeesBackwardPasses) {
  const at::Tensor x = at::ones({kKiB}).requires_grad_();
  const at::Tensor y = x.square().sum();
  const device::MemoryCount count;
  const auto grads = torch::autograd::grad({y}, {x});
  EXPECT_EQ(count.live_bytes(), static_cast<std::int64_t>(grads[0].nbytes()));
  EXPECT_GT(count.peak_bytes(), count.live_bytes());
}

}  // namespace
}  // namespace trireme::parallel
