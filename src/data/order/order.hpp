#pragma once
#include <cstdint>
#include <string_view>

namespace trireme::data {

/// The epoch of a global sample index, and its position in the set.
struct SampleLocation {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  // in [0, N)
};

struct OrderConfig {
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::string_view stream = {};  // selects another order for the same seed; "" for one set
  std::uint64_t chunk = 0;       // samples that stay together; 0: shuffle every sample
  std::uint64_t window = 64;     // number of chunks that are mixed, if chunk > 0
};

/// The data order as a function of (seed, global sample index): no index arrays, O(1) memory, any
/// access order.
///
/// Index i is draw k = i % N of epoch e = i / N. The position is P(k), a Feistel network of 6
/// rounds over 2h bits (4^h >= N, smallest h). Its round function is Philox with the key (seed,
/// "order.shuffle") and the counter (half, round, e). A result outside [0, N) is fed back until it
/// is inside (cycle walking, under 4 tries on average). Each epoch is another permutation of [0,
/// N). Source: Luby and Rackoff, SIAM J. Comput. 17(2), 1988; Black and Rogaway, CT-RSA 2002,
/// section 4.
///
/// With `chunk`, there are two levels, for file systems that prefer sequential reads: the chunks of
/// `chunk` samples are permuted, then the samples inside each group of `window` permuted chunks. So
/// `window` positions of the file are read at a time, each sequentially. This is also a permutation
/// of [0, N) in every epoch.
class SampleOrder {
 public:
  /// Throws Error(usage) unless num_samples is in [1, 2^62). Without shuffle the position is k.
  SampleOrder(std::uint64_t num_samples, const OrderConfig& config);

  SampleOrder(std::uint64_t num_samples, std::uint64_t seed, bool shuffle = true)
      : SampleOrder(num_samples, OrderConfig{.seed = seed, .shuffle = shuffle}) {}

  [[nodiscard]] SampleLocation place(std::uint64_t index) const noexcept;

  [[nodiscard]] std::uint64_t num_samples() const noexcept { return num_samples_; }

 private:
  [[nodiscard]] std::uint64_t by_chunks(std::uint64_t k, std::uint64_t epoch) const noexcept;

  std::uint64_t num_samples_;
  std::uint64_t key_;
  std::uint64_t window_key_;
  std::uint64_t chunk_;
  std::uint64_t window_;
  bool shuffle_;
};

}  // namespace trireme::data
