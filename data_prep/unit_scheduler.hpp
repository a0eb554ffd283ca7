#pragma once
#include <cstddef>
#include <optional>
#include <vector>

namespace trireme {

/// Hands out the units that are still to do, each exactly once over all who ask. Shards do not
/// depend on who makes them, so any rule of sharing is right; what it decides is only how long the
/// slowest rank takes.
class UnitScheduler {
 public:
  virtual ~UnitScheduler() = default;
  UnitScheduler() = default;
  UnitScheduler(const UnitScheduler&) = delete;
  UnitScheduler& operator=(const UnitScheduler&) = delete;
  UnitScheduler(UnitScheduler&&) = delete;
  UnitScheduler& operator=(UnitScheduler&&) = delete;

  /// The next unit of this rank, or none when all are handed out.
  virtual std::optional<std::size_t> next() = 0;
};

/// Rank r of n takes units r, r+n, r+2n, ... of `pending`: needs no messages. One rank: all in
/// order.
class CyclicScheduler : public UnitScheduler {
 public:
  CyclicScheduler(std::vector<std::size_t> pending, int rank, int size)
      : pending_(std::move(pending)),
        at_(static_cast<std::size_t>(rank)),
        step_(static_cast<std::size_t>(size)) {}

  std::optional<std::size_t> next() override {
    if (at_ >= pending_.size()) return std::nullopt;
    const std::size_t unit = pending_[at_];
    at_ += step_;
    return unit;
  }

 private:
  std::vector<std::size_t> pending_;
  std::size_t at_;
  std::size_t step_;
};

}  // namespace trireme
