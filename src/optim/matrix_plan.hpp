#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/param_registry.hpp"

namespace trireme::optim {

/// The positions of a rank in the grids of its pipeline stage.
struct StageGrids {
  parallel::ShardGrid dense;
  std::optional<parallel::ShardGrid> experts;  // the separate grid of experts
  std::int64_t persist = 0;                    // as in UnitLayout

  /// Returns the grid of dense units or of expert units.
  [[nodiscard]] const parallel::ShardGrid& of(bool of_experts) const {
    return of_experts ? *experts : dense;
  }

  /// Returns the number of ranks that together hold one copy of the matrices, and the index of this
  /// rank among them. They are neighbors in the world.
  [[nodiscard]] int ranks(bool of_experts) const;
  [[nodiscard]] int rank(bool of_experts) const;
};

/// Returns true if an optimizer of matrices updates the parameter: it has at least two dimensions
/// and is not an embedding or a head.
bool has_matrices(const parallel::ParamSpec& spec);

/// One matrix of a parameter with shape [.., rows, columns].
struct Matrix {
  parallel::ParamId id = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  int owner = 0;  // the rank that computes with the whole matrix
};

/// The part of a matrix that a rank holds: a range of the row-major elements of a rectangle.
struct MatrixPiece {
  std::size_t matrix = 0;
  std::int64_t row = 0;  // first row of the rectangle
  std::int64_t column = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t begin = 0;  // half-open range
  std::int64_t end = 0;
  std::size_t unit = 0;
  std::int64_t at = 0;  // element of the rank's part of the unit

  [[nodiscard]] std::int64_t count() const { return end - begin; }
};

/// Elements of a piece in the first column of a matrix (rows >= columns), else in its first row.
/// They hold one number of optimizer state for each row, or for each column.
struct PieceLines {
  std::int64_t first = 0;  // the first row or column
  std::int64_t begin = 0;  // its element in the piece
  std::int64_t step = 1;   // distance between elements
  std::int64_t count = 0;
};

PieceLines lines_of(const Matrix& matrix, const MatrixPiece& piece);

/// Pieces of each rank, ordered by matrix.
using PiecesByRank = std::vector<std::vector<MatrixPiece>>;

/// Says how the ranks that together hold one copy of the matrices gather each matrix on one owner
/// and scatter the result. Owners have about equal costs (multiplications of X X^T X).
struct MatrixPlan {
  std::vector<Matrix> matrices;
  PiecesByRank sent;      // pieces that this rank sends to each owner; elements once over all ranks
  PiecesByRank gathered;  // pieces of this rank's matrices that it receives from each rank
  PiecesByRank scattered;  // pieces of this rank's matrices that each rank holds
  PiecesByRank returned;   // pieces that this rank holds, by owner
};

/// Returns the plan of one rank for its dense units or its expert units. `registry` need not be
/// allocated.
MatrixPlan make_matrix_plan(const parallel::ParamRegistry& registry, const StageGrids& grids,
                            bool of_experts);

/// Return the number of elements, or of lines, for each rank.
std::vector<std::uint64_t> element_counts(const PiecesByRank& pieces);
std::vector<std::uint64_t> line_counts(const MatrixPlan& plan, const PiecesByRank& pieces);

}  // namespace trireme::optim
