#include "core/process/process_age.hpp"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

namespace trireme {

double process_age_s() {
  std::string line;
  std::ifstream stat("/proc/self/stat");
  std::getline(stat, line);
  const std::size_t name_end = line.rfind(')');  // the name may contain spaces
  timespec now{};
  if (name_end == std::string::npos || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  std::istringstream rest(line.substr(name_end + 1));
  std::string word;
  for (int field = 3; field < 22; ++field) rest >> word;
  double ticks = 0;  // field 22: start time since boot
  if (!(rest >> ticks)) return 0;
  const double since_boot_s =
      static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  return std::max(0.0, since_boot_s - ticks / static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

}  // namespace trireme
