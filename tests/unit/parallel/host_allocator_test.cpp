#include "device/host_allocator.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "device/device.hpp"
#include "device/memory_count.hpp"
#include "device/torch_errors.hpp"

namespace trireme::device {
namespace {

at::Tensor of_bytes(std::int64_t count) {
  return at::empty({count}, at::kByte);
}

TEST(HostAllocator, UsesAFreedBlockOfTheSameSizeAgain) {
  keep_freed_memory();
  const at::Tensor before = of_bytes(1 << 21);
  at::Tensor hole = of_bytes(1 << 21);
  const at::Tensor after = of_bytes(1 << 21);
  const void* const place = hole.const_data_ptr();
  hole.reset();
  EXPECT_EQ(of_bytes(1 << 21).const_data_ptr(), place);
}

TEST(HostAllocator, AlignsAndIsCounted) {
  use_host_allocator();
  const MemoryCount count;
  for (const std::int64_t bytes : {1, 63, 64, 65, 1000, 1 << 20, 100 << 20}) {
    const at::Tensor one = of_bytes(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(one.const_data_ptr()) % 64, 0U) << bytes;
    EXPECT_EQ(count.live_bytes(), bytes);
    EXPECT_TRUE(one.fill_(7).eq(7).all().item<bool>());
  }
  EXPECT_EQ(count.live_bytes(), 0);
  EXPECT_EQ(of_bytes(0).numel(), 0);
  at::Tensor grown = of_bytes(8).fill_(3);
  grown.resize_({1000});
  EXPECT_TRUE(grown.narrow(0, 0, 8).eq(3).all().item<bool>());
}

TEST(HostAllocator, RefusesMoreMemoryThanThereIs) {
  use_host_allocator();
  try {
    with_torch_errors([] { (void)of_bytes(std::int64_t{1} << 60); });
    FAIL() << "2^60 bytes were allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource) << error.what();
  }
}

}  // namespace
}  // namespace trireme::device
