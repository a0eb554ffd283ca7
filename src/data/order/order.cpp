#include "data/order/order.hpp"

#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "core/philox.hpp"

namespace trireme::data {
namespace {

constexpr std::uint64_t kRounds =
    6;  // 4 rounds suffice for large sets, but the halves of small sets have only a few bits

std::uint64_t feistel(std::uint64_t value, int half_bits, std::uint64_t key,
                      std::uint64_t epoch) noexcept {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = value >> half_bits;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t mixed = left ^ (philox4x32(key, (round << 32) | right, epoch)[0] & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits) | right;
}

/// Applies a permutation of [0, size), with cycle walking.
std::uint64_t permute(std::uint64_t value, std::uint64_t size, std::uint64_t key,
                      std::uint64_t epoch) noexcept {
  int half_bits = 1;
  while ((std::uint64_t{1} << (2 * half_bits)) < size) ++half_bits;
  do {
    value = feistel(value, half_bits, key, epoch);
  } while (value >= size);
  return value;
}

std::uint64_t key_of(std::uint64_t seed, std::string_view purpose, std::string_view stream) {
  return philox_key(seed, std::string(purpose) + std::string(stream));
}

}  // namespace

SampleOrder::SampleOrder(std::uint64_t num_samples, const OrderConfig& config)
    : num_samples_(num_samples),
      key_(key_of(config.seed, "order.shuffle", config.stream)),
      window_key_(key_of(config.seed, "order.window", config.stream)),
      chunk_(config.chunk),
      window_(std::max<std::uint64_t>(config.window, 1)),
      shuffle_(config.shuffle) {
  if (num_samples == 0 || num_samples >= std::uint64_t{1} << 62) {
    fail(ErrorKind::usage, "a data order over {} samples, must be in [1, 2^62)", num_samples);
  }
  if (chunk_ > std::uint64_t{1} << 32 || window_ > std::uint64_t{1} << 20)
    fail(ErrorKind::usage, "chunks of {} samples, windows of {}: too large", chunk_, window_);
}

SampleLocation SampleOrder::locate(std::uint64_t index) const noexcept {
  const std::uint64_t epoch = index / num_samples_;
  std::uint64_t position = index % num_samples_;
  if (!shuffle_) return {epoch, position};
  if (chunk_ == 0) return {epoch, permute(position, num_samples_, key_, epoch)};
  do {  // the last chunk may be short: permute positions after the end again
    position = by_chunks(position, epoch);
  } while (position >= num_samples_);
  return {epoch, position};
}

std::uint64_t SampleOrder::by_chunks(std::uint64_t k, std::uint64_t epoch) const noexcept {
  const std::uint64_t chunks = (num_samples_ + chunk_ - 1) / chunk_;
  const std::uint64_t window = k / (chunk_ * window_);
  const std::uint64_t first = window * window_;  // first chunk of the window, in permuted order
  const std::uint64_t size = std::min(window_, chunks - first) * chunk_;
  const PhiloxWords mixed = philox4x32(window_key_, window, epoch);
  const std::uint64_t key = (std::uint64_t{mixed[0]} << 32) | mixed[1];
  const std::uint64_t inside = permute(k - first * chunk_, size, key, epoch);
  return permute(first + inside / chunk_, chunks, key_, epoch) * chunk_ + inside % chunk_;
}

}  // namespace trireme::data
