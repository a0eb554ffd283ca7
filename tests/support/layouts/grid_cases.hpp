#pragma once
#include <string>
#include <vector>

#include "train/config/config.hpp"

namespace trireme::testing {

/// One grid of ranks, with what else they share. Factors of its matrix first; `number` gives the rest
/// turns.
struct GridCase {
  std::int64_t dp = 1;
  std::int64_t tp = 1;
  std::int64_t pp = 1;
  std::int64_t cp = 1;
  std::int64_t ep = 1;
  std::int64_t etp = 1;
  std::string schedule = "1f1b";
  std::int64_t zero = 0;
  std::int64_t micro_batches = 1;
  std::size_t number = 0;

  [[nodiscard]] int ranks() const { return static_cast<int>(dp * tp * pp * cp); }

  /// Experts lie in a grid of their own.
  [[nodiscard]] bool folds() const { return ep > 1 || etp != tp; }
};

/// Every factorization of 1, 2, 4 and 8 over (dp, tp, pp, cp), with every ep that divides
/// tp cp dp / etp, etp as tp or 1: 125 grids; x 6 schedules where pp > 1 x ZeRO 0 to 3 where
/// dp cp > 1 x micro-batches 1, p and 2 p + 1 (without stages 1 and 3).
std::vector<GridCase> all_grid_cases();

/// Some of them that have every pair of values of two factors which any has.
std::vector<GridCase> covering_cases(const std::vector<GridCase>& cases);

/// The configuration, with turns of experts, ties, recompute, sequence parallelism, adapters, dropout,
/// stages, gathering and optimizer.
RunConfig config_of(const GridCase& one);

std::string name_of(const GridCase& one);

}  // namespace trireme::testing
