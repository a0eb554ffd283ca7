#pragma once
#include <cstdint>
#include <thread>

/// A wall clock for this process alone. A program that links wall_clock.cpp and exports its symbols
/// (ENABLE_EXPORTS) replaces clock_gettime, gettimeofday and time, also for the libraries that it
/// uses. The steady clock and file times are those of the kernel.
namespace trireme::test {

/// Sets the wall clock `seconds` ahead of the kernel's clock; negative values set it back.
void set_wall_clock(std::int64_t ahead_s);

/// Returns how often this process has read the wall clock.
std::uint64_t num_wall_clock_reads();

/// Moves the wall clock every 20 ms from one day behind to one day ahead and back, until
/// destruction.
class RestlessWallClock {
 public:
  RestlessWallClock();
  RestlessWallClock(const RestlessWallClock&) = delete;
  RestlessWallClock& operator=(const RestlessWallClock&) = delete;
  ~RestlessWallClock();

 private:
  std::jthread thread_;
};

}  // namespace trireme::test
