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
std::vector<std::size_t> covering_places(const std::vector<FactorValues>& cases, Cover cover);

/// The same of cases whose factors `factors_of` tells.
template <class Case>
std::vector<Case> covering(const std::vector<Case>& cases, Cover cover,
                           FactorValues (*factors_of)(const Case&)) {
  std::vector<FactorValues> factors;
  for (const Case& one : cases) factors.push_back(factors_of(one));
  std::vector<Case> chosen;
  for (const std::size_t place : covering_places(factors, cover)) chosen.push_back(cases[place]);
  return chosen;
}

}  // namespace trireme::testing
