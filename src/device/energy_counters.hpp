#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trireme::device {

/// The energy counters that one process reads.
struct EnergySources {
  bool reads_cpus = true;  // one process on each node reads the counters of the CPUs
  std::string gpu{};       // gpu_identity() of the GPU; "": none
  std::filesystem::path powercap = "/sys/class/powercap";
  std::string nvml = "libnvidia-ml.so.1";
};

/// Reads the energy of CPU packages and memory (RAPL of Linux), and energy and clock of one GPU
/// (NVML). Counters that do not exist or cannot be read are absent: since Linux 5.10, only root
/// reads RAPL by default. Sources: Linux kernel documentation, "Power Capping Framework"; NVIDIA,
/// "NVML API Reference", nvmlDeviceGetTotalEnergyConsumption and nvmlDeviceGetClockInfo.
class EnergyCounters {
 public:
  explicit EnergyCounters(const EnergySources& sources);

  [[nodiscard]] bool empty() const { return counters_.empty(); }

  /// Returns the names of the counters, separated by commas, such as "package-0, dram, GPU".
  [[nodiscard]] std::string names() const;

  /// Returns the energy in joules since the last call (or since the construction) of all counters;
  /// NaN if a counter cannot be read any more. A RAPL counter wraps after some minutes to an hour,
  /// so the calls must not be further apart.
  [[nodiscard]] double take_joules();

  /// Returns the current clock of the GPU's multiprocessors in MHz; nullopt if it cannot be read.
  [[nodiscard]] std::optional<double> gpu_clock_mhz() const;

 private:
  struct Counter {
    std::string name;
    std::function<std::optional<std::uint64_t>()> read;
    double unit_j = 1e-6;      // energy of one count
    std::uint64_t range = 0;   // largest value before the counter wraps; 0: it does not wrap
    std::uint64_t before = 0;  // value at the last call
  };

  void add(Counter counter);
  void add_rapl(const std::filesystem::path& powercap);
  void add_nvml(const EnergySources& sources);

  std::vector<Counter> counters_;
  std::function<std::optional<double>()> gpu_clock_mhz_;  // empty without a GPU
};

}  // namespace trireme::device
