#pragma once
#include <cstdint>
#include <thread>

/// This process's own wall clock: a program that links wall_clock.cpp and exports its symbols
/// (ENABLE_EXPORTS) answers clock_gettime, gettimeofday and time itself, also for the libraries it
/// uses. The steady clock is the kernel's. File times are not touched.
namespace trireme::test {

/// Seconds that the wall clock is ahead of the kernel's from now on; negative: set back.
void set_wall_clock(std::int64_t ahead_s);

/// How often the wall clock has been read in this process.
std::uint64_t num_wall_clock_reads();

/// The wall clock jumps from a day behind to a day ahead and back, every 20 ms, while this lives.
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
