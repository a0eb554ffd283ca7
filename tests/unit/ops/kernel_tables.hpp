#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "ops/cpu/kernels.hpp"

/// The machine usually runs only its best kernel table. The tests of CPU kernels compare every table
/// that the machine can run with the formulas in fp64.
namespace trireme::ops::kernels {

using Floats = std::vector<float>;
using Halves = std::vector<std::uint16_t>;

inline Floats random_floats(std::size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

class EveryTable : public ::testing::TestWithParam<const Table*> {};

INSTANTIATE_TEST_SUITE_P(OfThisMachine, EveryTable,
                         ::testing::ValuesIn(usable_tables().begin(), usable_tables().end()),
                         [](const auto& instance) { return std::string(instance.param->name); });

}  // namespace trireme::ops::kernels
