#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "core/timer.hpp"

namespace trireme::comm {

/// The current activity of this rank, for the heartbeat. Trainer and communicators write it.
struct ActivitySnapshot {
  std::int64_t step = 0;         // the trainer's step counter
  std::uint64_t operations = 0;  // collectives started, in all groups
  std::string group;             // group of the last collective
  std::string operation;
  std::string tag;
  std::uint64_t sequence = 0;   // sequence number of the last collective in its group
  // phase of the trainer: setup, data, rollout, step, save, validate
  std::string phase = "setup";
  bool complete = true;
  bool waiting = false;    // inside Work::wait
  bool timed_out = false;  // a Work exceeded its timeout
};

class Activity {
 public:
  void set_step(std::int64_t step);
  void set_phase(const char* phase);
  void begin(const std::string& group, const char* operation, std::string_view tag,
             std::uint64_t sequence);
  void complete(const std::string& group, std::uint64_t sequence);
  void set_waiting(bool waiting);
  /// Returns the total time spent in Work::wait, over all groups, in seconds. It includes waits for
  /// other ranks and for transfers.
  [[nodiscard]] double waited_s() const;
  void time_out();
  [[nodiscard]] ActivitySnapshot snapshot() const;

 private:
  mutable std::mutex mutex_;
  ActivitySnapshot now_;
  Timer since_wait_;  // runs while now_.waiting is true
  double waited_s_ = 0;
};

}  // namespace trireme::comm
