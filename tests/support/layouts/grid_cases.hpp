#pragma once
#include <string>
#include <vector>

#include "train/config/config.hpp"

namespace trireme::testing {

/// One grid of ranks and the settings of its training. The factors of the matrix come first;
/// `number` selects all other settings.
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

  /// Experts have a grid of their own.
  [[nodiscard]] bool folds() const { return ep > 1 || etp != tp; }
};

/// Returns every factorization of 1, 2, 4 and 8 over (dp, tp, pp, cp), with every ep that divides
/// tp cp dp / etp and etp equal to tp or 1: 125 grids. Each is combined with 6 schedules where pp >
/// 1, ZeRO 0 to 3 where dp cp > 1, and 1, p and 2 p + 1 micro-batches (without stages 1 and 3).
std::vector<GridCase> all_grid_cases();

/// Returns a subset of `cases` that contains every pair of values of two factors that occurs in any
/// case.
std::vector<GridCase> covering_cases(const std::vector<GridCase>& cases);

/// Returns the configuration of the case. Its number selects experts, tied embeddings, activation
/// checkpointing, sequence parallelism, adapters, dropout, stages, parameter gathering and
/// optimizer.
train::RunConfig config_of(const GridCase& one);

std::string name_of(const GridCase& one);

}  // namespace trireme::testing
