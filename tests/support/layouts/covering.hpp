#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::testing {

/// A case as a list of its factor values, each in [0, kMostFactorValues). All cases have the same
/// number of factors.
struct FactorValues {
  std::vector<std::int64_t> values;
  // Among cases with the same number of new pairs, the lowest cost is chosen, then the lowest
  // index.
  int cost = 0;
};

inline constexpr std::int64_t kMostFactorValues = 9;

enum class Cover { each_value, each_pair };

/// Returns the indices of few cases that together contain every single value, or every pair of
/// values of two factors, that occurs in any case. Greedy: always takes the case with the most
/// values or pairs that are not covered yet.
std::vector<std::size_t> covering_indices(const std::vector<FactorValues>& cases, Cover cover);

/// Like above, for cases with factors that `factors_of` returns.
template <class Case>
std::vector<Case> covering(const std::vector<Case>& cases, Cover cover,
                           FactorValues (*factors_of)(const Case&)) {
  std::vector<FactorValues> factors;
  for (const Case& one : cases) factors.push_back(factors_of(one));
  std::vector<Case> chosen;
  for (const std::size_t place : covering_indices(factors, cover)) chosen.push_back(cases[place]);
  return chosen;
}

}  // namespace trireme::testing
