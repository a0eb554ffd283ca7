#include "parallel/init_values.hpp"

#include <cmath>
#include <numbers>
#include <string>

#include "core/philox.hpp"

namespace trireme::parallel {
namespace {

/// Returns values 2*pair and 2*pair + 1.
std::pair<double, double> normal_pair(std::uint64_t key, std::uint64_t pair) {
  const PhiloxWords words = philox4x32(key, pair, 0);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform_double(words[0], words[1])));
  const double angle = 2.0 * std::numbers::pi * uniform_double(words[2], words[3]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

std::pair<double, double> uniform_pair(std::uint64_t key, std::uint64_t pair) {
  const PhiloxWords words = philox4x32(key, pair, 0);
  return {2.0 * uniform_double(words[0], words[1]) - 1.0,
          2.0 * uniform_double(words[2], words[3]) - 1.0};
}

/// `pair_of(key, pair)` returns values 2*pair and 2*pair + 1.
template <class PairOf>
std::vector<double> values_of_pairs(std::uint64_t seed, std::string_view name,
                                    const std::vector<std::int64_t>& shape, const Slice& slice,
                                    PairOf pair_of) {
  const std::uint64_t key = philox_key(seed, std::string("init.") + std::string(name));
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(slice.count()));
  for (const SliceRun& run : intersect(shape, Slice::whole(shape), slice)) {
    for (std::int64_t i = run.source_index; i < run.source_index + run.count; ++i) {
      const auto index = static_cast<std::uint64_t>(i);
      const auto [even, odd] = pair_of(key, index / 2);
      const bool is_odd = (index & 1U) != 0;
      values.push_back(is_odd ? odd : even);
      if (!is_odd && i + 1 < run.source_index + run.count) {
        values.push_back(odd);
        ++i;
      }
    }
  }
  return values;
}

}  // namespace

std::vector<double> normal_values(std::uint64_t seed, std::string_view name,
                                  const std::vector<std::int64_t>& shape, const Slice& slice) {
  return values_of_pairs(seed, name, shape, slice, normal_pair);
}

std::vector<double> uniform_values(std::uint64_t seed, std::string_view name,
                                   const std::vector<std::int64_t>& shape, const Slice& slice) {
  return values_of_pairs(seed, name, shape, slice, uniform_pair);
}

}  // namespace trireme::parallel
