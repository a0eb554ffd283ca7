#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "optim/matrix_plan.hpp"
#include "optim/param_ranges.hpp"

namespace trireme::optim {

/// Neighboring elements of one parameter on this rank, and their position in a message.
struct MatrixRun {
  parallel::ParamId id = 0;
  FlatRange elements;
  std::int64_t begin = 0;  // element of the message
};

/// Gathers whole matrices from the ranks that hold slices of them, and scatters results. Each
/// matrix has one owner (MatrixPlan). Messages are flat tensors on the device of the registry.
class MatrixExchange {
 public:
  /// The registry must be allocated and must outlive this object. Collective over the world.
  MatrixExchange(parallel::ParamRegistry& registry, const StageGrids& grids, bool of_experts);

  /// Returns null if this rank holds all matrices whole.
  [[nodiscard]] comm::Communicator* group() const { return group_.get(); }

  /// Returns true if the stage has any matrix, on any rank.
  [[nodiscard]] bool any() const { return !plan_.matrices.empty(); }

  /// Returns the elements that this rank sends to owners, and those that it receives from them. An
  /// element that several ranks of tp hold is sent once and returned to all of them.
  [[nodiscard]] const std::vector<MatrixRun>& sent_runs() const { return sent_runs_; }

  [[nodiscard]] const std::vector<MatrixRun>& returned_runs() const { return returned_runs_; }

  /// Returns an empty message for the elements of sent_runs().
  [[nodiscard]] at::Tensor make_sent() const;
  /// Sends the message to the owners. Returns the message that contains this rank's matrices.
  [[nodiscard]] at::Tensor gather(const at::Tensor& sent) const;

  /// The matrices of this rank are numbered from 0.
  [[nodiscard]] std::size_t num_owned() const { return owned_.size(); }

  [[nodiscard]] const Matrix& owned(std::size_t i) const {
    return plan_.matrices[owned_[i].matrix];
  }

  /// Returns a whole matrix [rows, columns] of a gathered message, as a view or a copy.
  [[nodiscard]] at::Tensor whole(const at::Tensor& gathered, std::size_t i) const;

  /// Returns a message to scatter. It may be `gathered` itself, so a matrix must be read before
  /// put() writes it.
  [[nodiscard]] at::Tensor make_scattered(const at::Tensor& gathered) const;
  void put(const at::Tensor& matrix, std::size_t i, const at::Tensor& scattered) const;
  /// Sends the message to the holders. Returns the message with the elements of returned_runs().
  [[nodiscard]] at::Tensor scatter(const at::Tensor& scattered) const;

  // Lines: one number for each row of a matrix if rows >= columns, else for each column. They are
  // stored in the first column or row of a state buffer of the registry.

  /// Returns the lines of each owned matrix.
  [[nodiscard]] std::vector<at::Tensor> gather_lines(const at::Tensor& state) const;
  /// Stores the lines in the state buffers of all ranks that hold them.
  void scatter_lines(const std::vector<at::Tensor>& lines, const at::Tensor& state) const;

 private:
  /// A piece in a message of elements and in a message of lines.
  struct Located {
    MatrixPiece piece;
    std::int64_t at = 0;
    std::int64_t line_at = 0;
  };

  struct Owned {
    std::size_t matrix = 0;
    std::vector<Located> gathered;
    std::vector<Located> scattered;
  };

  [[nodiscard]] std::vector<Located> located(const PiecesByRank& pieces) const;
  [[nodiscard]] std::vector<MatrixRun> runs(const PiecesByRank& pieces) const;
  [[nodiscard]] at::Tensor make_message(const std::vector<std::uint64_t>& counts) const;
  [[nodiscard]] at::Tensor exchanged(const at::Tensor& sent,
                                     const std::vector<std::uint64_t>& sent_counts,
                                     const std::vector<std::uint64_t>& received_counts,
                                     const char* tag) const;
  /// Returns the elements of `state` that hold the lines of a piece of this rank.
  [[nodiscard]] at::Tensor lines_in(const at::Tensor& state, const Located& one) const;

  parallel::ParamRegistry& registry_;
  MatrixPlan plan_;
  std::unique_ptr<comm::Communicator> group_;
  std::vector<MatrixRun> sent_runs_;
  std::vector<MatrixRun> returned_runs_;
  std::vector<Owned> owned_;
};

}  // namespace trireme::optim
