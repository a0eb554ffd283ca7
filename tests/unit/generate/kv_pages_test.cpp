#include "generate/cache/kv_pages.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "device/own_pages.hpp"
#include "support/resident.hpp"

namespace trireme::generate {
namespace {

constexpr std::int64_t kBlocks = 2048;
constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kBlockBytes = 2 * kHeads * kWidth * 16 * 4;  // keys and values, fp32
constexpr std::int64_t kMebi = std::int64_t{1} << 20;

model::KvCache make_cache() {
  const auto make = [](std::int64_t count) { return device::own_pages(count, at::kFloat); };
  return {{ops::make_paged_cache(kBlocks, kHeads, kWidth, make)}};
}

using testing::resident_bytes;

void expect_done(const KvPages& pages, std::int64_t blocks) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (pages.done() < blocks && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(pages.done(), blocks);
}

TEST(KvPages, MemoryIsUnderBlocksBeforeTheyAreReached) {
  const model::KvCache cache = make_cache();
  const std::int64_t before = resident_bytes();
  KvPages pages(cache);
  expect_done(pages, KvPages::kAhead);
  // Whole huge pages at the ends of keys and values of each head.
  EXPECT_GE(resident_bytes() - before, KvPages::kAhead * kBlockBytes - kMebi);
  EXPECT_LE(resident_bytes() - before, KvPages::kAhead * kBlockBytes + 20 * kMebi);
  pages.reach(300);
  expect_done(pages, 300 + KvPages::kAhead);
  EXPECT_GE(resident_bytes() - before, (300 + KvPages::kAhead) * kBlockBytes - kMebi);
  pages.reach(200);  // less than reached before
  pages.reach(kBlocks);
  expect_done(pages, kBlocks);
}

TEST(KvPages, EndsAtOnce) {
  const model::KvCache cache = make_cache();
  const std::int64_t before = resident_bytes();
  {
    KvPages pages(cache);
    pages.reach(kBlocks);
  }
  EXPECT_LT(resident_bytes() - before, kBlocks * kBlockBytes / 2);
}

}  // namespace
}  // namespace trireme::generate
