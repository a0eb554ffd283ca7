#include "data/order.hpp"

#include "core/error.hpp"
#include "core/philox.hpp"

namespace trireme {
namespace {

constexpr std::uint64_t kRounds =
    6;  // 4 suffice for wide halves; small sets have halves of few bits

}  // namespace

SampleOrder::SampleOrder(std::uint64_t num_samples, std::uint64_t seed, bool shuffle)
    : num_samples_(num_samples), key_(philox_key(seed, "order.shuffle")), shuffle_(shuffle) {
  if (num_samples == 0 || num_samples >= std::uint64_t{1} << 62) {
    fail(ErrorKind::usage, "a data order over ", num_samples, " samples, must be in [1, 2^62)");
  }
  while ((std::uint64_t{1} << (2 * half_bits_)) < num_samples) ++half_bits_;
}

SamplePlace SampleOrder::place(std::uint64_t index) const noexcept {
  const std::uint64_t epoch = index / num_samples_;
  std::uint64_t position = index % num_samples_;
  if (!shuffle_) return {epoch, position};
  do {
    position = feistel(position, epoch);
  } while (position >= num_samples_);
  return {epoch, position};
}

std::uint64_t SampleOrder::feistel(std::uint64_t value, std::uint64_t epoch) const noexcept {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t mixed = left ^ (philox4x32(key_, (round << 32) | right, epoch)[0] & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

}  // namespace trireme
