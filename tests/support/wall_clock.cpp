#include "support/wall_clock.hpp"

#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>

namespace trireme::test {
namespace {

constinit std::atomic<std::int64_t> g_ahead_s{0};
constinit std::atomic<std::uint64_t> g_reads{0};

/// Calls the kernel directly, because this file defines the C library's function.
int kernel_clock(clockid_t clock, timespec* now) {
  return static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
}

timespec wall_now(clockid_t clock) {
  timespec now{};
  kernel_clock(clock, &now);
  now.tv_sec += g_ahead_s;
  ++g_reads;
  return now;
}

}  // namespace

void set_wall_clock(std::int64_t ahead_s) {
  g_ahead_s = ahead_s;
}

std::uint64_t num_wall_clock_reads() {
  return g_reads;
}

RestlessWallClock::RestlessWallClock()
    : thread_([](const std::stop_token& stop) {
        constexpr std::int64_t kDay_s = 86'400;
        for (int i = 0; !stop.stop_requested(); ++i) {
          set_wall_clock(i % 2 == 0 ? -kDay_s : kDay_s);
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
      }) {}

RestlessWallClock::~RestlessWallClock() {
  thread_.request_stop();
  thread_.join();
  set_wall_clock(0);
}

}  // namespace trireme::test

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
    return trireme::test::kernel_clock(clock, now);
  *now = trireme::test::wall_now(clock);
  return 0;
}

int gettimeofday(timeval* __restrict now, void* __restrict) noexcept {
  const timespec wall = trireme::test::wall_now(CLOCK_REALTIME);
  now->tv_sec = wall.tv_sec;
  now->tv_usec = wall.tv_nsec / 1000;
  return 0;
}

std::time_t time(std::time_t* now) noexcept {
  const timespec wall = trireme::test::wall_now(CLOCK_REALTIME);
  if (now != nullptr) *now = wall.tv_sec;
  return wall.tv_sec;
}

}  // extern "C"
