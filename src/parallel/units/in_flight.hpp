#pragma once
#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>

#include "comm/communicator.hpp"
#include "core/timer.hpp"

namespace trireme {

/// The times of one update's communication, in seconds since begin().
struct OverlapTimes {
  double first_launch_s = 0;  // launch of the first gradients
  double last_ready_s = 0;    // completion of the last gradient
  double comm_s = 0;          // total time with at least one collective in flight
  double exposed_s = 0;       // part of comm_s after the end of backward, when the rank only waits

  /// Returns the communication time that backward hid.
  [[nodiscard]] double hidden_s() const { return std::max(0.0, comm_s - exposed_s); }
};

/// The pending gradient collectives of one update, oldest first.
class InFlight {
 public:
  void begin();

  /// Records that a gradient is complete.
  void note_ready() { times_.last_ready_s = timer_.seconds(); }

  /// Adds a collective. `then` runs after its completion, after the functions of all earlier ones.
  void add(
      WorkPtr work, std::function<void()> then = [] {});

  /// Makes progress without waiting.
  void poll();
  /// Waits until at most `count` collectives are pending.
  void wait_for_all_but(std::size_t count);
  /// Waits for all collectives after the end of backward.
  void finish();

  [[nodiscard]] const OverlapTimes& times() const { return times_; }

 private:
  struct Item {
    WorkPtr work;
    std::function<void()> then;
  };

  void retire_oldest();

  std::deque<Item> items_;
  bool none_left_ = true;  // since begin()
  double busy_since_s_ = 0;
  Timer timer_;
  OverlapTimes times_;
};

}  // namespace trireme
