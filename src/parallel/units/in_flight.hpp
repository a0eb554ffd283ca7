#pragma once
#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>

#include "comm/communicator.hpp"
#include "core/timer.hpp"

namespace trireme {

/// When the communication of one update happened, in seconds since its begin().
struct OverlapTimes {
  double first_launch_s = 0;  // the first gradients left
  double last_ready_s = 0;    // the last gradient was complete
  double comm_s = 0;          // total time during which at least one collective was in flight
  double exposed_s = 0;       // of it, time in which backward had ended and the rank only waited

  /// Returns the communication time that backward hid.
  [[nodiscard]] double hidden_s() const { return std::max(0.0, comm_s - exposed_s); }
};

/// The gradient collectives of one update that have left and are not complete, oldest first.
class InFlight {
 public:
  void begin();

  /// A gradient is complete.
  void note_ready() { times_.last_ready_s = timer_.seconds(); }

  /// `then` runs when the work is complete, after those of all earlier ones.
  void add(
      WorkPtr work, std::function<void()> then = [] {});

  /// Lets communication progress; cheap.
  void poll();
  /// Waits until at most `count` are left.
  void wait_for_all_but(std::size_t count);
  /// Waits for all; backward has ended.
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
