#pragma once
#include <cstdint>

namespace trireme {

/// Where a global sample index points: which pass over the set, and which of its samples.
struct SamplePlace {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  // in [0, N)
};

/// The data order as a function of (seed, global sample index): no index arrays, O(1) memory, any
/// access order.
///
/// Index i lies in epoch e = i / N as its k-th draw, k = i % N. The position is P(k), a Feistel
/// network of 6 rounds over 2h bits (4^h >= N, smallest h) whose round function is Philox keyed by
/// (seed, "order.shuffle") and counted by (half, round, e); a result outside [0, N) is fed back
/// until it falls inside (cycle walking, under 4 tries on average). Each epoch is another
/// permutation of [0, N). Source: Luby and Rackoff, SIAM J. Comput. 17(2), 1988; Black and Rogaway,
/// CT-RSA 2002, section 4.
class SampleOrder {
 public:
  /// num_samples >= 1 and below 2^62, or Error(usage). Without shuffle the position is k itself.
  SampleOrder(std::uint64_t num_samples, std::uint64_t seed, bool shuffle = true);

  [[nodiscard]] SamplePlace place(std::uint64_t index) const noexcept;

  [[nodiscard]] std::uint64_t num_samples() const noexcept { return num_samples_; }

 private:
  [[nodiscard]] std::uint64_t feistel(std::uint64_t value, std::uint64_t epoch) const noexcept;

  std::uint64_t num_samples_;
  std::uint64_t key_;
  int half_bits_ = 1;
  bool shuffle_;
};

}  // namespace trireme
