#pragma once
#include <cstdint>
#include <string_view>

namespace trireme::data {

/// The epoch of a global sample index, and its position in the set.
struct SampleLocation {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  // from 0 to N - 1
};

struct OrderConfig {
  std::uint64_t seed = 0;
  bool shuffle = true;
  // another text gives another order for the same seed; "" for one set
  std::string_view stream = {};
  std::uint64_t chunk = 0;    // samples that stay together; 0: shuffle every sample
  std::uint64_t window = 64;  // number of chunks that are mixed, if chunk > 0
};

/// The data order as a function of (seed, global sample index): no index arrays, O(1) memory, any
/// access order.
///
/// With N samples, index i is sample k = i % N of epoch e = i / N. Its position is P(k). P is a
/// Feistel network of 6 rounds over 2h bits, with the smallest h for which 4^h >= N. The round
/// function is Philox with the key (seed, "order.shuffle") and the counter (half, round, e). If a
/// result is outside [0, N), P is applied again until the result is inside (cycle walking, under 4
/// tries on average). Each epoch has another permutation of [0, N). Source: Luby and Rackoff, SIAM
/// J. Comput. 17(2), 1988; Black and Rogaway, CT-RSA 2002, section 4.
///
/// If `chunk` is not 0, the order has two levels, for file systems that are fast only for
/// sequential reads. First, the chunks of `chunk` adjacent samples are permuted. Then the samples
/// inside each group of `window` permuted chunks are permuted. Therefore a run reads from only
/// `window` chunks of the file at a time. The result is also a permutation of [0, N) in every
/// epoch.
class SampleOrder {
 public:
  /// Throws Error(usage) unless num_samples is in [1, 2^62). Without shuffle the position is k.
  SampleOrder(std::uint64_t num_samples, const OrderConfig& config);

  SampleOrder(std::uint64_t num_samples, std::uint64_t seed, bool shuffle = true)
      : SampleOrder(num_samples, OrderConfig{.seed = seed, .shuffle = shuffle}) {}

  [[nodiscard]] SampleLocation locate(std::uint64_t index) const noexcept;

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
