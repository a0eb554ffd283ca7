#pragma once
#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace trireme::testing {

/// Returns the resident memory of this process, in bytes.
inline std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0;
  std::int64_t resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace trireme::testing
