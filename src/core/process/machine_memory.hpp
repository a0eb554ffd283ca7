#pragma once
#include <cstdint>
#include <filesystem>

namespace trireme {

/// Memory in bytes of this machine, or of the part of it that this process may use.
struct MachineMemory {
  double total = 0;      // what it has: nothing larger ever fits
  double available = 0;  // what it has now, with caches given back
};

/// /proc/meminfo, lowered to the tightest limit of the control groups above this process (version 1
/// or 2: a job's limit, a container's). `root` holds proc and sys. A file that is absent or not
/// readable sets no limit; without meminfo both are infinite.
MachineMemory machine_memory(const std::filesystem::path& root = "/");

/// Processes that the kernel of this machine has killed for want of memory since its boot; 0 where it
/// does not tell. `root` holds proc.
std::int64_t num_oom_kills(const std::filesystem::path& root = "/");

}  // namespace trireme
