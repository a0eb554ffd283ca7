#include "core/process/debugger.hpp"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "core/error.hpp"
#include "core/log.hpp"

namespace trireme {
namespace {

/// Returns true if a debugger holds this process (TracerPid of /proc/self/status is not 0).
bool is_traced() {
  constexpr std::string_view kKey = "TracerPid:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(kKey)) return line.find_first_not_of("\t 0", kKey.size()) != line.npos;
  return false;
}

}  // namespace

void wait_for_debugger(std::string_view who) {
  log::info(formatted("{} waits for a debugger: gdb -p {}", who, ::getpid()));
  while (!is_traced()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace trireme
