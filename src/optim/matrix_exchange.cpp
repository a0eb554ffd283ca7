#include "optim/matrix_exchange.hpp"

#include <ATen/ATen.h>

#include <map>
#include <numeric>

#include "parallel/collectives.hpp"

namespace trireme::optim {
namespace {

/// Copies between elements [begin, end) of a rectangle and `flat` [end - begin].
void copy_elements(const at::Tensor& rectangle, std::int64_t begin, std::int64_t end,
                   const at::Tensor& flat, bool to_flat) {
  const std::int64_t width = rectangle.size(1);
  std::int64_t done = begin;
  while (done < end) {
    const std::int64_t row = done / width;
    const std::int64_t column = done % width;
    // Whole rows at once; a cut row alone.
    const std::int64_t whole_rows = column == 0 ? (end - done) / width : 0;
    const std::int64_t count =
        whole_rows > 0 ? whole_rows * width : std::min(end - done, width - column);
    const at::Tensor inside = whole_rows > 0 ? rectangle.narrow(0, row, whole_rows)
                                             : rectangle.select(0, row).narrow(0, column, count);
    at::Tensor outside = flat.narrow(0, done - begin, count).view_as(inside);
    if (to_flat) {
      outside.copy_(inside);
    } else {
      at::Tensor(inside).copy_(outside);
    }
    done += count;
  }
}

at::Tensor rectangle_of(const at::Tensor& matrix, const MatrixPiece& piece) {
  return matrix.narrow(0, piece.row, piece.height).narrow(1, piece.column, piece.width);
}

}  // namespace

MatrixExchange::MatrixExchange(parallel::ParamRegistry& registry, const StageGrids& grids,
                               bool of_experts)
    : registry_(registry), plan_(make_matrix_plan(registry, grids, of_experts)) {
  comm::Communicator& world = registry.mesh().world();
  const int ranks = grids.ranks(of_experts);
  if (ranks > 1) {
    group_ = world.split(world.rank() / ranks, world.rank() % ranks,
                         of_experts ? "expert matrices" : "matrices");
    TRIREME_ASSERT(group_->rank() == grids.rank(of_experts));
  }
  sent_runs_ = runs(plan_.sent);
  returned_runs_ = runs(plan_.returned);
  std::map<std::size_t, Owned> owned;
  for (Located& one : located(plan_.gathered)) owned[one.piece.matrix].gathered.push_back(one);
  for (Located& one : located(plan_.scattered)) owned[one.piece.matrix].scattered.push_back(one);
  for (auto& [matrix, one] : owned) {
    one.matrix = matrix;
    owned_.push_back(std::move(one));
  }
}

std::vector<MatrixExchange::Located> MatrixExchange::located(const PiecesByRank& pieces) const {
  std::vector<Located> all;
  std::int64_t at = 0;
  std::int64_t line_at = 0;
  for (const std::vector<MatrixPiece>& of_rank : pieces) {
    for (const MatrixPiece& piece : of_rank) {
      all.push_back({piece, at, line_at});
      at += piece.count();
      line_at += lines_of(plan_.matrices[piece.matrix], piece).count;
    }
  }
  return all;
}

std::vector<MatrixRun> MatrixExchange::runs(const PiecesByRank& pieces) const {
  std::vector<MatrixRun> all;
  for (const Located& one : located(pieces)) {
    const parallel::ParamId id = plan_.matrices[one.piece.matrix].id;
    const FlatRange elements{one.piece.unit, one.piece.at, one.piece.count()};
    FlatRange* last = all.empty() ? nullptr : &all.back().elements;
    if (last != nullptr && all.back().id == id && last->unit == elements.unit &&
        last->begin + last->count == elements.begin) {
      last->count += elements.count;
    } else {
      all.push_back({id, elements, one.at});
    }
  }
  return all;
}

at::Tensor MatrixExchange::make_message(const std::vector<std::uint64_t>& counts) const {
  const auto count = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  return at::empty({static_cast<std::int64_t>(count)},
                   at::TensorOptions().dtype(registry_.dtypes().main).device(registry_.device()));
}

at::Tensor MatrixExchange::exchanged(const at::Tensor& sent,
                                     const std::vector<std::uint64_t>& sent_counts,
                                     const std::vector<std::uint64_t>& received_counts,
                                     const char* tag) const {
  if (!group_) return sent;
  at::Tensor received = make_message(received_counts);
  parallel::all_to_all(*group_, sent, sent_counts, received, received_counts, tag)->wait();
  return received;
}

at::Tensor MatrixExchange::make_sent() const {
  return make_message(element_counts(plan_.sent));
}

at::Tensor MatrixExchange::gather(const at::Tensor& sent) const {
  return exchanged(sent, element_counts(plan_.sent), element_counts(plan_.gathered),
                   "gather matrices");
}

at::Tensor MatrixExchange::whole(const at::Tensor& gathered, std::size_t i) const {
  const Matrix& shape = owned(i);
  const std::vector<Located>& pieces = owned_[i].gathered;
  if (pieces.size() == 1) {
    return gathered.narrow(0, pieces.front().at, shape.rows * shape.columns)
        .view({shape.rows, shape.columns});
  }
  at::Tensor matrix = at::empty({shape.rows, shape.columns}, gathered.options());
  for (const auto& [piece, at, line_at] : pieces)
    copy_elements(rectangle_of(matrix, piece), piece.begin, piece.end,
                  gathered.narrow(0, at, piece.count()), /*to_flat=*/false);
  return matrix;
}

at::Tensor MatrixExchange::make_scattered(const at::Tensor& gathered) const {
  return group_ ? make_message(element_counts(plan_.scattered)) : gathered;
}

void MatrixExchange::put(const at::Tensor& matrix, std::size_t i,
                         const at::Tensor& scattered) const {
  for (const auto& [piece, at, line_at] : owned_[i].scattered)
    copy_elements(rectangle_of(matrix, piece), piece.begin, piece.end,
                  scattered.narrow(0, at, piece.count()), /*to_flat=*/true);
}

at::Tensor MatrixExchange::scatter(const at::Tensor& scattered) const {
  return exchanged(scattered, element_counts(plan_.scattered), element_counts(plan_.returned),
                   "scatter matrices");
}

at::Tensor MatrixExchange::lines_in(const at::Tensor& state, const Located& one) const {
  const PieceLines lines = lines_of(plan_.matrices[one.piece.matrix], one.piece);
  const at::Tensor elements =
      registry_.part_of(state, one.piece.unit).narrow(0, one.piece.at, one.piece.count());
  return elements.slice(0, lines.begin, lines.begin + (lines.count - 1) * lines.step + 1,
                        lines.step);
}

std::vector<at::Tensor> MatrixExchange::gather_lines(const at::Tensor& state) const {
  const std::vector<std::uint64_t> counts = line_counts(plan_, plan_.sent);
  at::Tensor sent = make_message(counts);
  for (const Located& one : located(plan_.sent)) {
    const std::int64_t count = lines_of(plan_.matrices[one.piece.matrix], one.piece).count;
    if (count > 0) sent.narrow(0, one.line_at, count).copy_(lines_in(state, one));
  }
  const at::Tensor gathered =
      exchanged(sent, counts, line_counts(plan_, plan_.gathered), "gather lines");
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < num_owned(); ++i) {
    const Matrix& shape = owned(i);
    at::Tensor lines = at::empty({std::max(shape.rows, shape.columns)}, gathered.options());
    for (const auto& [piece, at, line_at] : owned_[i].gathered) {
      const PieceLines here = lines_of(shape, piece);
      if (here.count > 0)
        lines.narrow(0, here.first, here.count).copy_(gathered.narrow(0, line_at, here.count));
    }
    all.push_back(lines);
  }
  return all;
}

void MatrixExchange::scatter_lines(const std::vector<at::Tensor>& lines,
                                   const at::Tensor& state) const {
  const std::vector<std::uint64_t> counts = line_counts(plan_, plan_.scattered);
  at::Tensor scattered = make_message(counts);
  for (std::size_t i = 0; i < num_owned(); ++i) {
    for (const auto& [piece, at, line_at] : owned_[i].scattered) {
      const PieceLines here = lines_of(owned(i), piece);
      if (here.count > 0)
        scattered.narrow(0, line_at, here.count).copy_(lines[i].narrow(0, here.first, here.count));
    }
  }
  const at::Tensor returned =
      exchanged(scattered, counts, line_counts(plan_, plan_.returned), "scatter lines");
  for (const Located& one : located(plan_.returned)) {
    const std::int64_t count = lines_of(plan_.matrices[one.piece.matrix], one.piece).count;
    if (count > 0) lines_in(state, one).copy_(returned.narrow(0, one.line_at, count));
  }
}

}  // namespace trireme::optim
