#include "device/device.hpp"

#include <ATen/Parallel.h>
#include <c10/core/AllocatorConfig.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "device/allocator_settings.hpp"
#include "device/cpu_peak.hpp"
#include "device/peak_table.hpp"
#include "device/precision.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::parallel {
namespace {

TEST(Device, PrecisionsKeepMainWeightsWide) {
  EXPECT_EQ(device::precision_dtypes("fp32").compute, at::kFloat);
  EXPECT_EQ(device::precision_dtypes("fp64").main, at::kDouble);
  EXPECT_EQ(device::precision_dtypes("bf16").compute, at::kBFloat16);
  EXPECT_EQ(device::precision_dtypes("bf16").main, at::kFloat);
  EXPECT_EQ(device::precision_dtypes("fp16").compute, at::kHalf);
  EXPECT_EQ(device::precision_dtypes("fp16").main, at::kFloat);
  const Error error = error_of([] { device::precision_dtypes("fp8"); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_TRUE(contains(error.what(), "train.precision = fp8"));
}

TEST(Device, CpuIsAlwaysThereAndUnknownNamesAreRefused) {
  EXPECT_TRUE(device::choose_device("cpu", 3).is_cpu());
  EXPECT_EQ(error_of([] { device::choose_device("gpu", 0); }).kind(), ErrorKind::usage);
}

TEST(Device, SegmentsExpandUnlessTheUserConfiguresTheAllocator) {
  const auto expand = [] {
    device::use_expandable_segments();
    return c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments();
  };
  ::setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False", 1);
  EXPECT_FALSE(expand());
  ::unsetenv("PYTORCH_CUDA_ALLOC_CONF");
  EXPECT_TRUE(expand());
}

TEST(Device, ThreadsComeFromTheUserThenOpenMpThenTheCores) {
  ::setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_EQ(device::set_cpu_threads(2, 1), 2);
  EXPECT_EQ(at::get_num_threads(), 2);
  EXPECT_EQ(device::set_cpu_threads(0, 1), 3);
  ::setenv("OMP_NUM_THREADS", "3000000000", 1);
  EXPECT_EQ(device::set_cpu_threads(0, 1), 1024);
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(device::set_cpu_threads(0, 1 << 20), 1);  // at least one
}

TEST(Device, MeasuresFlopsAndMemory) {
  at::set_num_threads(1);
  const auto peak = [](at::ScalarType type) {  // the best of five: other tests share the cores
    double best = 0;
    for (int i = 0; i < 5; ++i) best = std::max(best, device::measured_peak_flops(at::kCPU, type));
    return best;
  };
  const double fp32 = peak(at::kFloat);
  const double fp64 = peak(at::kDouble);
  EXPECT_GT(fp32, 1e9);
  // A register has half as many fp64 numbers. The tolerance is 0.6, because another process may
  // slow down one of the measurements.
  EXPECT_NEAR(fp32 / fp64, 2, 0.6);
  // Otherwise a CPU without 16-bit instructions would show an MFU far above 1.
  EXPECT_GE(peak(at::kBFloat16), 0.6 * fp32);
  EXPECT_EQ(device::known_peak_flops(at::kCPU, at::kFloat), 0);
  const std::int64_t before = device::peak_memory_bytes(at::kCPU);
  const at::Tensor large = at::ones({64 << 20}, at::kByte);
  EXPECT_GE(device::peak_memory_bytes(at::kCPU), std::max<std::int64_t>(before, large.numel()));
}

TEST(Device, DataSheetPeaksBelongToWholeNamesOnly) {
  const auto half = [](const char* name) {
    return device::data_sheet_flops(name, at::kBFloat16) / 1e12;
  };
  EXPECT_EQ(half("NVIDIA A100-SXM4-80GB"), 312);
  EXPECT_EQ(half("NVIDIA A100 80GB PCIe"), 312);
  EXPECT_EQ(half("NVIDIA H100 80GB HBM3"), 989.4);
  EXPECT_EQ(half("NVIDIA H100 PCIe"), 756);
  EXPECT_EQ(half("NVIDIA H200 NVL"), 835);
  EXPECT_EQ(half("NVIDIA A10"), 125);
  EXPECT_EQ(half("NVIDIA L4"), 121);
  EXPECT_EQ(half("NVIDIA L40S"), 362);
  EXPECT_EQ(half("NVIDIA GB200"), 2500);
  EXPECT_EQ(half("NVIDIA B200"), 2250);
  EXPECT_EQ(half("NVIDIA GeForce RTX 4090"), 165.2);
  for (const char* other : {"NVIDIA A10G", "NVIDIA L40", "NVIDIA GeForce RTX 4090 D",
                            "NVIDIA GeForce RTX 4090 Laptop GPU", "Tesla V100-SXM2-16GB",
                            "NVIDIA A100-SXM4-80GB MIG 1g.10gb"})
    EXPECT_EQ(half(other), 0) << other;
  EXPECT_EQ(device::data_sheet_flops("NVIDIA A100-SXM4-40GB", at::kHalf), 312e12);
  EXPECT_EQ(device::data_sheet_flops("NVIDIA A100-SXM4-40GB", at::kFloat), 19.5e12);
  EXPECT_EQ(device::data_sheet_flops("NVIDIA A100-SXM4-40GB", at::kDouble), 0);
}

TEST(Device, PeakDoesNotChangeBesideBusyNeighbours) {
  at::set_num_threads(2);
  const double quiet = device::cpu_register_flops(at::kFloat);
  std::atomic<bool> is_done{false};
  std::vector<std::thread> neighbours;
  for (int i = 0; i < 4; ++i) {
    neighbours.emplace_back([&] {
      while (!is_done) {
      }
    });
  }
  const double loaded = device::cpu_register_flops(at::kFloat);
  is_done = true;
  for (std::thread& neighbour : neighbours) neighbour.join();
  EXPECT_NEAR(loaded / quiet, 1, 0.2);
}

TEST(Device, PeakCountsEachCoreOnce) {
  const std::vector<int> all = device::one_cpu_per_core(1 << 20);
  EXPECT_GE(all.size(), 1U);
  EXPECT_LE(all.size(), std::thread::hardware_concurrency());
  EXPECT_EQ(device::one_cpu_per_core(1), std::vector{all[0]});
  at::set_num_threads(1);
  const double one = device::cpu_register_flops(at::kFloat);
  at::set_num_threads(64);
  const double cores = std::min(64.0, static_cast<double>(all.size()));
  EXPECT_NEAR(device::cpu_register_flops(at::kFloat) / one, cores, 0.3 * cores);
  at::set_num_threads(1);
}

}  // namespace
}  // namespace trireme::parallel
