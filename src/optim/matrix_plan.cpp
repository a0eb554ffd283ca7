#include "optim/matrix_plan.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace trireme::optim {
namespace {

/// Returns the grids of rank `rank` of a group of StageGrids::ranks.
StageGrids grids_at(const StageGrids& grids, bool of_experts, int rank) {
  StageGrids there = grids;
  parallel::ShardGrid& grid = of_experts ? *there.experts : there.dense;
  grid.tp_rank = rank % grid.tp;
  grid.ep_rank = rank / grid.tp % grid.ep;
  grid.shard = rank / (grid.tp * grid.ep);
  return there;
}

std::int64_t stack_size(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end() - 2, std::int64_t{1}, std::multiplies<>());
}

/// The matrices of one kind of units, and the pieces that a layout holds of them.
class MatrixList {
 public:
  MatrixList(const parallel::ParamRegistry& registry, const parallel::UnitLayout& layout,
             bool of_experts, int ranks)
      : registry_(registry) {
    for (const std::size_t unit : layout.trainable_units()) {
      if (layout.units()[unit].experts != of_experts) continue;
      units_.push_back(unit);
      for (const parallel::ParamId id : layout.units()[unit].params) add(id);
    }
    choose_owners(ranks);
  }

  [[nodiscard]] const std::vector<Matrix>& matrices() const { return matrices_; }

  /// Returns the pieces that a rank holds; with `owned`, without elements that a lower rank of tp
  /// also holds.
  [[nodiscard]] std::vector<MatrixPiece> pieces(const parallel::UnitLayout& layout,
                                                bool owned) const {
    std::vector<MatrixPiece> all;
    for (const std::size_t unit : units_) {
      const parallel::IndexRange part = layout.part(unit);
      for (parallel::ParamSpan span :
           owned ? layout.owned_spans(unit, part) : layout.spans(unit, part)) {
        span.begin -= part.begin;
        if (first_of_.contains(span.id)) add_pieces(layout, unit, span, all);
      }
    }
    return all;
  }

 private:
  void add(parallel::ParamId id) {
    const parallel::ParamSpec& spec = registry_.spec(id);
    if (!has_matrices(spec)) return;
    first_of_[id] = matrices_.size();
    const std::size_t dims = spec.shape.size();
    for (std::int64_t i = 0; i < stack_size(spec.shape); ++i)
      matrices_.push_back({id, spec.shape[dims - 2], spec.shape[dims - 1]});
  }

  /// Gives each matrix, largest cost first, to the rank with the smallest cost so far.
  void choose_owners(int ranks) {
    const auto cost = [&](std::size_t i) {
      const Matrix& one = matrices_[i];
      return one.rows * one.columns * std::min(one.rows, one.columns);
    };
    std::vector<std::size_t> order(matrices_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return cost(a) > cost(b); });
    std::vector<std::int64_t> costs(static_cast<std::size_t>(ranks));
    for (const std::size_t i : order) {
      const auto least = std::min_element(costs.begin(), costs.end());
      matrices_[i].owner = static_cast<int>(least - costs.begin());
      *least += cost(i);
    }
  }

  /// `span.begin` is an element of the rank's part of the unit.
  void add_pieces(const parallel::UnitLayout& layout, std::size_t unit,
                  const parallel::ParamSpan& span, std::vector<MatrixPiece>& all) const {
    const parallel::Slice& slice = layout.param(span.id).slice;
    const std::vector<std::int64_t>& shape = registry_.spec(span.id).shape;
    const std::size_t dims = shape.size();
    MatrixPiece piece;
    piece.row = slice.offset[dims - 2];
    piece.column = slice.offset[dims - 1];
    piece.height = slice.extent[dims - 2];
    piece.width = slice.extent[dims - 1];
    piece.unit = unit;
    const std::int64_t area = piece.height * piece.width;
    // Only the first dimension of a stack is split.
    const std::int64_t before =
        dims > 2 ? slice.offset[0] * (stack_size(shape) / shape[0]) : std::int64_t{0};
    const std::int64_t end = span.first + span.count;
    for (std::int64_t i = span.first / area; i * area < end; ++i) {
      piece.matrix = first_of_.at(span.id) + static_cast<std::size_t>(before + i);
      piece.begin = std::max(span.first, i * area) - i * area;
      piece.end = std::min(end, (i + 1) * area) - i * area;
      piece.at = span.begin + i * area + piece.begin - span.first;
      all.push_back(piece);
    }
  }

  const parallel::ParamRegistry& registry_;
  std::vector<std::size_t> units_;
  std::vector<Matrix> matrices_;
  std::map<parallel::ParamId, std::size_t> first_of_;
};

parallel::UnitLayout layout_of(const parallel::ParamRegistry& registry, const StageGrids& grids) {
  return registry.layout_at(grids.dense, grids.experts, grids.persist);
}

}  // namespace

int StageGrids::ranks(bool of_experts) const {
  const parallel::ShardGrid& grid = of(of_experts);
  return grid.tp * grid.ep * grid.shards;
}

int StageGrids::rank(bool of_experts) const {
  const parallel::ShardGrid& grid = of(of_experts);
  return grid.tp_rank + grid.tp * (grid.ep_rank + grid.ep * grid.shard);
}

bool has_matrices(const parallel::ParamSpec& spec) {
  return spec.shape.size() >= 2 && spec.table == parallel::ParamSpec::Table::none &&
         spec.sign_rate == 0;
}

PieceLines lines_of(const Matrix& matrix, const MatrixPiece& piece) {
  const bool by_row = matrix.rows >= matrix.columns;
  if (!by_row) {
    const std::int64_t end = piece.row == 0 ? std::min(piece.end, piece.width) : 0;
    return {piece.column + piece.begin, 0, 1, std::max<std::int64_t>(end - piece.begin, 0)};
  }
  if (piece.column > 0) return {};
  const std::int64_t first = (piece.begin + piece.width - 1) / piece.width;
  const std::int64_t end = (piece.end + piece.width - 1) / piece.width;
  return {piece.row + first, first * piece.width - piece.begin, piece.width, end - first};
}

MatrixPlan make_matrix_plan(const parallel::ParamRegistry& registry, const StageGrids& grids,
                            bool of_experts) {
  const int ranks = grids.ranks(of_experts);
  const int rank = grids.rank(of_experts);
  const parallel::UnitLayout here = layout_of(registry, grids);
  const MatrixList list(registry, here, of_experts, ranks);
  MatrixPlan plan;
  plan.matrices = list.matrices();
  const auto owner = [&](const MatrixPiece& piece) { return plan.matrices[piece.matrix].owner; };
  for (PiecesByRank* pieces : {&plan.sent, &plan.gathered, &plan.scattered, &plan.returned})
    pieces->resize(static_cast<std::size_t>(ranks));
  for (const MatrixPiece& piece : list.pieces(here, /*owned=*/true))
    plan.sent[static_cast<std::size_t>(owner(piece))].push_back(piece);
  for (const MatrixPiece& piece : list.pieces(here, /*owned=*/false))
    plan.returned[static_cast<std::size_t>(owner(piece))].push_back(piece);
  for (int other = 0; other < ranks; ++other) {
    const parallel::UnitLayout there = layout_of(registry, grids_at(grids, of_experts, other));
    const auto at = static_cast<std::size_t>(other);
    for (const MatrixPiece& piece : list.pieces(there, /*owned=*/true))
      if (owner(piece) == rank) plan.gathered[at].push_back(piece);
    for (const MatrixPiece& piece : list.pieces(there, /*owned=*/false))
      if (owner(piece) == rank) plan.scattered[at].push_back(piece);
  }
  return plan;
}

std::vector<std::uint64_t> element_counts(const PiecesByRank& pieces) {
  std::vector<std::uint64_t> counts;
  for (const std::vector<MatrixPiece>& of_rank : pieces) {
    std::int64_t count = 0;
    for (const MatrixPiece& piece : of_rank) count += piece.count();
    counts.push_back(static_cast<std::uint64_t>(count));
  }
  return counts;
}

std::vector<std::uint64_t> line_counts(const MatrixPlan& plan, const PiecesByRank& pieces) {
  std::vector<std::uint64_t> counts;
  for (const std::vector<MatrixPiece>& of_rank : pieces) {
    std::int64_t count = 0;
    for (const MatrixPiece& piece : of_rank)
      count += lines_of(plan.matrices[piece.matrix], piece).count;
    counts.push_back(static_cast<std::uint64_t>(count));
  }
  return counts;
}

}  // namespace trireme::optim
