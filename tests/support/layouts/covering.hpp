#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::testing {

/// A case by its factors: which value each of them has, in [0, kMostFactorValues). All cases have as many.
struct FactorValues {
  std::vector<std::int64_t> values;
  int cost = 0;  // of cases that are as good the cheapest is chosen, then the first
};

inline constexpr std::int64_t kMostFactorValues = 9;

enum class Cover { each_value, each_pair };

/// Places of few cases that have every value of a factor, or every pair of values of two factors, which any
/// case has. Greedily: always the case with the most that no case before has.
std::vector<std::size_t> covering(const std::vector<FactorValues>& cases, Cover cover);

}  // namespace trireme::testing
