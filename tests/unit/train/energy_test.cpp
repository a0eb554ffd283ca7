/// Energy counters: RAPL with files like those of Linux, NVML with a library that has the same
/// functions. A real GPU and real RAPL files are not needed.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <mutex>

#include "comm/thread/thread_world.hpp"
#include "device/energy_counters.hpp"
#include "support/combined_measures.hpp"
#include "train/run/run_energy.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::train {
namespace {

const std::string kGpu = "00112233445566778899aabbccddeeff";

class Energy : public Scratch {
 protected:
  void zone(const std::string& folder, const std::string& name, std::uint64_t microjoules) const {
    std::filesystem::create_directories(at(folder));
    std::ofstream(at(folder + "/name")) << name << "\n";
    std::ofstream(at(folder + "/energy_uj")) << microjoules << "\n";
    std::ofstream(at(folder + "/max_energy_range_uj")) << 10'000'000 << "\n";
  }

  [[nodiscard]] device::EnergySources rapl() const {
    return {.powercap = at(""), .nvml = "libabsent.so"};
  }
};

TEST_F(Energy, OfRaplAddsPackagesAndMemoryButNotTheirPartsAndFollowsAWrap) {
  zone("intel-rapl:0", "package-0", 1'000'000);
  zone("intel-rapl:0:0", "core", 5);
  zone("intel-rapl:0:1", "dram", 9'000'000);
  zone("intel-rapl:1", "psys", 5);
  zone("intel-rapl-mmio:0", "package-0", 5);
  device::EnergyCounters counters(rapl());
  EXPECT_EQ(counters.names(), "package-0, dram");

  zone("intel-rapl:0", "package-0", 3'500'000);
  zone("intel-rapl:0:0", "core", 777'777);
  zone("intel-rapl:0:1", "dram", 500'000);  // 1.5 J after the wrap at 10 J

  EXPECT_DOUBLE_EQ(counters.take_joules(), 2.5 + 1.5);
  EXPECT_EQ(counters.take_joules(), 0);
  std::filesystem::remove(at("intel-rapl:0/energy_uj"));
  EXPECT_TRUE(std::isnan(counters.take_joules()));
}

TEST_F(Energy, OfAGpuComesFromNvmlByItsUuid) {
  device::EnergyCounters counters({.reads_cpus = false, .gpu = kGpu, .nvml = TRIREME_FAKE_NVML});
  EXPECT_EQ(counters.names(), "GPU");
  EXPECT_DOUBLE_EQ(counters.take_joules(), 2.5);
  EXPECT_EQ(counters.gpu_clock_mhz(), 1755);
  EXPECT_FALSE(device::EnergyCounters(rapl()).gpu_clock_mhz()) << "no GPU";

  EXPECT_TRUE(
      device::EnergyCounters({.reads_cpus = false, .gpu = kGpu, .nvml = "libabsent.so"}).empty());
  EXPECT_TRUE(device::EnergyCounters(
                  {.reads_cpus = false, .gpu = std::string(32, 'f'), .nvml = TRIREME_FAKE_NVML})
                  .empty());
}

TEST_F(Energy, OfAStepCountsEachNodeAndEachGpuOnce) {
  zone("intel-rapl:0", "package-0", 0);
  testing::CombinedMeasures all;
  std::mutex mutex;
  Measures names;
  comm::run_ranks(4,
                  [&](comm::Communicator& world) {  // two nodes of two ranks; ranks 2, 3: one GPU
                    Measures measures;
                    device::EnergySources sources = rapl();
                    if (world.rank() >= 2) sources.gpu = kGpu;
                    sources.nvml = TRIREME_FAKE_NVML;
                    RunEnergy energy(world, measures, /*is_on=*/true, world.rank() % 2, sources);
                    if (world.rank() == 0) zone("intel-rapl:0", "package-0", 6'000'000);
                    world.barrier();
                    energy.record(2);
                    const std::lock_guard lock(mutex);
                    all.add(measures, world.rank());
                    names = measures;
                  });

  const auto values = all.values(names);
  EXPECT_DOUBLE_EQ(values.at("energy_j"), (6.0 + 6.0 + 2.5) / 2);
  EXPECT_EQ(values.at("gpu_clock_mhz"), 1755) << "ranks without a GPU do not count";
  EXPECT_EQ(values.at("gpu_clock_min_mhz"), 1755);
}

TEST_F(Energy, IsAbsentIfNoRankCanReadACounter) {
  comm::run_ranks(2, [&](comm::Communicator& world) {
    Measures measures;
    RunEnergy energy(world, measures, /*is_on=*/true, world.rank(), rapl());
    energy.record(1);
    EXPECT_TRUE(measures.declared().empty());
  });
}

}  // namespace
}  // namespace trireme::train
