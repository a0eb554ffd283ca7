#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "core/timer.hpp"

namespace trireme {

/// What this rank does now: written by the trainer and the communicators, read
/// by the heartbeat thread.
struct ActivitySnapshot {
  std::int64_t step = 0;         // the trainer's step counter
  std::uint64_t operations = 0;  // collectives started, all groups together
  std::string group;             // of the last collective
  std::string operation;
  std::string tag;
  std::uint64_t sequence = 0;   // in that group
  std::string phase = "setup";  // of the trainer: setup, data, step, save, validate
  bool complete = true;
  bool waiting = false;    // in Work::wait
  bool timed_out = false;  // a Work ran into its timeout
};

class Activity {
 public:
  void set_step(std::int64_t step);
  void set_phase(const char* phase);
  void begin(const std::string& group, const char* operation, std::string_view tag,
             std::uint64_t sequence);
  void complete(const std::string& group, std::uint64_t sequence);
  void set_waiting(bool waiting);
  /// Seconds in Work::wait so far, all groups together: for other ranks, and
  /// for bytes on their way.
  [[nodiscard]] double waited_s() const;
  void time_out();
  [[nodiscard]] ActivitySnapshot snapshot() const;

 private:
  mutable std::mutex mutex_;
  ActivitySnapshot now_;
  Timer since_wait_;  // while now_.waiting
  double waited_s_ = 0;
};

}  // namespace trireme
