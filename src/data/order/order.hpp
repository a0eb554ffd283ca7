#pragma once
#include <cstdint>
#include <string_view>

namespace trireme {

/// Where a global sample index points: which pass over the set, and which of its samples.
struct SamplePlace {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  // in [0, N)
};

struct OrderConfig {
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::string_view stream = {};  // another text, another order from the same seed; "" for one set
  std::uint64_t chunk = 0;       // neighbours that stay near each other; 0: every sample by itself
  std::uint64_t window = 64;     // chunks that are mixed with each other, with chunk > 0
};

/// The data order as a function of (seed, global sample index): no index arrays,
/// O(1) memory, any access order.
///
/// Index i lies in epoch e = i / N as its k-th draw, k = i % N. The position is P(k), a Feistel
/// network of 6 rounds over 2h bits (4^h >= N, smallest h) whose round function is Philox keyed by
/// (seed, "order.shuffle") and counted by (half, round, e); a result outside [0, N) is fed back
/// until it falls inside (cycle walking, under 4 tries on average). Each epoch is another
/// permutation of [0, N). Source: Luby and Rackoff, SIAM J. Comput. 17(2), 1988; Black and Rogaway,
/// CT-RSA 2002, section 4.
///
/// With `chunk`, two levels for file systems that like neighbours: the chunks of `chunk` samples
/// are permuted, then the samples inside each run of `window` permuted chunks; so `window` places
/// of the file are read at a time, each in a row. Also a permutation of [0, N) in every epoch.
class SampleOrder {
 public:
  /// num_samples >= 1 and below 2^62, or Error(usage). Without shuffle the position is k itself.
  SampleOrder(std::uint64_t num_samples, const OrderConfig& config);

  SampleOrder(std::uint64_t num_samples, std::uint64_t seed, bool shuffle = true)
      : SampleOrder(num_samples, OrderConfig{.seed = seed, .shuffle = shuffle}) {}

  [[nodiscard]] SamplePlace place(std::uint64_t index) const noexcept;

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

}  // namespace trireme
