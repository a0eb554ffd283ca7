#pragma once
#include <array>
#include <cstdint>
#include <string_view>

/// Philox4x32-10, a counter-based random generator. A number depends on (key, counter) only, so
/// masks and initial weights are the same for every layout, in activation checkpointing and after
/// resume. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
namespace trireme {

using PhiloxWords = std::array<std::uint32_t, 4>;

constexpr PhiloxWords philox4x32(std::uint64_t key, std::uint64_t counter_low,
                                 std::uint64_t counter_high) noexcept {
  constexpr std::uint32_t kMultiply0 = 0xD2511F53;
  constexpr std::uint32_t kMultiply1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  PhiloxWords c{
      static_cast<std::uint32_t>(counter_low), static_cast<std::uint32_t>(counter_low >> 32),
      static_cast<std::uint32_t>(counter_high), static_cast<std::uint32_t>(counter_high >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{kMultiply0} * c[0];
    const std::uint64_t product1 = std::uint64_t{kMultiply1} * c[2];
    c = {static_cast<std::uint32_t>(product1 >> 32) ^ c[1] ^ key0,
         static_cast<std::uint32_t>(product1),
         static_cast<std::uint32_t>(product0 >> 32) ^ c[3] ^ key1,
         static_cast<std::uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

/// Returns the key for one purpose of one run ("init", "dropout.mlp", "order.shuffle"): FNV-1a of
/// the purpose, mixed with the seed.
constexpr std::uint64_t philox_key(std::uint64_t seed, std::string_view purpose) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : purpose) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  hash ^= seed + 0x9E3779B97F4A7C15 + (hash << 6) + (hash >> 2);
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EB;
  return hash ^ (hash >> 31);
}

/// Converts two words to a uniform number in [0, 1) with 53 bits.
constexpr double uniform_double(std::uint32_t high, std::uint32_t low) noexcept {
  const std::uint64_t bits = (std::uint64_t{high} << 21) ^ (low >> 11);
  return static_cast<double>(bits) * 0x1.0p-53;
}

}  // namespace trireme
