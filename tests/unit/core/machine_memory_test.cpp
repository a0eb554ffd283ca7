#include "core/process/machine_memory.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>

#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

class MachineMemoryTest : public Scratch {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(at(name).parent_path());
    std::ofstream(at(name)) << text;
  }

  void write_meminfo() const {
    write("proc/meminfo", "MemTotal:  1000 kB\nMemFree:  7 kB\nMemAvailable:    600 kB\n");
  }

  [[nodiscard]] MachineMemory read() const { return machine_memory(at("")); }
};

TEST_F(MachineMemoryTest, IsTheMachinesWithoutGroups) {
  write_meminfo();

  EXPECT_EQ(read().total, 1000 * 1024);
  EXPECT_EQ(read().available, 600 * 1024);
}

TEST_F(MachineMemoryTest, IsTheTightestLimitAboveThisProcess) {
  write_meminfo();
  write("proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  write("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
  write("sys/fs/cgroup/slurm/job_7/memory.max", "700000\n");
  write("sys/fs/cgroup/slurm/memory.max", "900000\n");

  EXPECT_EQ(read().total, 700000);
  EXPECT_EQ(read().available, 600 * 1024);
}

TEST_F(MachineMemoryTest, ReadsVersion1AndTheRootOfAContainer) {
  write_meminfo();
  write("proc/self/cgroup", "9:cpu,memory:/job\n8:pids:/other\n0::/\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(read().total, 1000 * 1024);

  write("sys/fs/cgroup/memory.max", "5000\n");

  EXPECT_EQ(read().total, 5000);
  EXPECT_EQ(read().available, 5000);
}

TEST_F(MachineMemoryTest, IsUnlimitedWhereNothingIsSaid) {
  EXPECT_TRUE(std::isinf(read().total));
  EXPECT_GT(machine_memory().available, 1e6);
  EXPECT_LE(machine_memory().available, machine_memory().total);
}

}  // namespace
}  // namespace trireme
