#pragma once
#include <cstdint>
#include <filesystem>

namespace trireme {

/// The memory of this machine that this process may use, in bytes.
struct MachineMemory {
  double total = 0;      // the total; nothing larger ever fits
  double available = 0;  // available now, including reclaimable caches
};

/// Returns the memory of /proc/meminfo, capped by the lowest limit of the control groups above this
/// process (version 1 or 2, of a job or a container). `root` holds proc and sys. An absent or
/// unreadable file sets no limit; without meminfo both values are infinite.
MachineMemory machine_memory(const std::filesystem::path& root = "/");

/// Returns the number of out-of-memory kills since boot; 0 if unknown. `root` holds proc.
std::int64_t num_oom_kills(const std::filesystem::path& root = "/");

}  // namespace trireme
