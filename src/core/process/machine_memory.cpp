#include "core/process/machine_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "core/number.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// Returns the value of a line such as "MemTotal:" in bytes.
double meminfo(const fs::path& root, const std::string& name) {
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    double kilobytes = 0;
    if (words >> key >> kilobytes && key == name + ':') return kilobytes * 1024;
  }
  return kNoLimit;
}

/// Returns the number in a limit file; "max" and an absent file mean no limit.
double limit_in(const fs::path& file) {
  std::string text;
  std::ifstream(file) >> text;
  return parse_number(text).value_or(kNoLimit);
}

/// Returns the lowest limit of the group `name` and its ancestors.
double tightest_limit(const fs::path& mount, fs::path name, const char* file) {
  double limit = kNoLimit;
  for (name = name.relative_path(); !name.empty(); name = name.parent_path())
    limit = std::min(limit, limit_in(mount / name / file));
  return std::min(limit, limit_in(mount / file));
}

/// Lines of /proc/self/cgroup are "0::/group" (version 2) and "4:memory,other:/group" (1).
double group_limit(const fs::path& root) {
  double limit = kNoLimit;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const fs::path group = line.substr(second + 1);
    const fs::path mount = root / "sys/fs/cgroup";
    if (controllers == ",,") limit = std::min(limit, tightest_limit(mount, group, "memory.max"));
    if (controllers.find(",memory,") != std::string::npos)
      limit = std::min(limit, tightest_limit(mount / "memory", group, "memory.limit_in_bytes"));
  }
  return limit;
}

}  // namespace

MachineMemory machine_memory(const fs::path& root) {
  const double limit = group_limit(root);
  return {std::min(meminfo(root, "MemTotal"), limit),
          std::min(meminfo(root, "MemAvailable"), limit)};
}

std::int64_t num_oom_kills(const fs::path& root) {
  std::ifstream file(root / "proc/vmstat");
  std::string key;
  for (std::int64_t count = 0; file >> key >> count;) {
    if (key == "oom_kill") return count;
  }
  return 0;
}

}  // namespace trireme
