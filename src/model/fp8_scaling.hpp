#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <string>

#include "model/fp8_linears.hpp"
#include "ops/fp8.hpp"
#include "parallel/tensor/tensor_group.hpp"

/// The fp8 arithmetic of linears. Each linear has three products:
///
///                 contraction   factors                          with tensorwise, delayed: formats
///   output        in            x and W by rows                  e4m3, e4m3
///   input grad    out           grad_y by rows, W by columns     e5m2, e4m3
///   weight grad   tokens        grad_y and x by columns          e5m2, e4m3
///
/// With tensorwise and delayed, a scale belongs to a whole tensor. With rowwise, a scale belongs to
/// a row of a factor and is a power of two, and all factors use e4m3. If ranks of tp hold parts of
/// one tensor or row, they take the maximum over the group, so that codes do not depend on tp. Sums
/// are fp32, and results have the dtype of x.
///
/// A pass over grad_y computes its codes by rows and by columns. A pass over x does the same if the
/// caller saves the codes of x^T instead of x.
namespace trireme::model {

/// The operands of a linear, in the order of their amax values.
enum class Fp8Operand : std::size_t { input, weight, output_grad };

/// The scaling of all linears of a model and, with `delayed`, the amax history of their operands.
/// The history is equal on all ranks, and holds all layers of the model.
class Fp8Scaling {
 public:
  /// Number of updates that the history covers.
  static constexpr std::int64_t kHistory = 16;

  Fp8Scaling() = default;
  Fp8Scaling(Fp8Mode mode, const ModelConfig& config, ops::Path path = ops::Path::fast);

  [[nodiscard]] Fp8Mode mode() const { return mode_; }

  [[nodiscard]] ops::Path path() const { return path_; }

  /// Returns true if this matrix is multiplied in fp8.
  [[nodiscard]] bool has(Fp8Linear which) const {
    return mode_ != Fp8Mode::off && linears_.at(static_cast<std::size_t>(which));
  }

  /// Allocates the history.
  void prepare(at::Device device);

  /// Begins an update: discards the amax values of an update that was cancelled.
  void begin_update();
  /// Appends the amax values of an update to the history, unless the update was skipped. Collective
  /// over `world` with `delayed`; does nothing otherwise.
  void end_update(comm::Communicator& world, bool applied);

  /// Returns the fp32 scales [n] of `tensors`: n adjacent operands of a linear in one format, from
  /// `first` on. `linear` is layer * kNumFp8Linears + matrix. With an empty history, `delayed`
  /// scales like `tensorwise`. Collective over `group` if the scales depend on the tensors.
  [[nodiscard]] at::Tensor scales(std::int64_t linear, Fp8Operand first,
                                  std::span<const at::Tensor> tensors,
                                  const parallel::TensorGroup& group);

  /// Returns the history as text; nullopt if there is none.
  [[nodiscard]] std::optional<std::string> history() const;
  /// Restores the history of a checkpoint; without `delayed` does nothing. Throws Error(data) for a
  /// text that is not a history of this model.
  void restore(const std::string& text);

 private:
  void set_scales();

  Fp8Mode mode_ = Fp8Mode::off;
  ops::Path path_ = ops::Path::fast;
  std::array<bool, kNumFp8Linears> linears_{};
  std::int64_t num_operands_ = 0;
  std::int64_t updates_ = 0;  // rows of the history that are in use
  at::Tensor amax_;           // [operands], of the current update on this rank
  at::Tensor history_;        // [kHistory, operands], newest first
  at::Tensor scales_;         // [operands], from the history
};

/// One call of a linear in fp8, from its forward to its weight gradient.
class Fp8Call {
 public:
  /// With `row_parallel`, the ranks of `group` split the columns of W, otherwise its rows. All
  /// arguments must outlive this object.
  Fp8Call(Fp8Scaling& scaling, std::int64_t linear, const parallel::TensorGroup& group,
          bool row_parallel)
      : scaling_(&scaling), linear_(linear), group_(&group), row_parallel_(row_parallel) {}

  /// Computes x W^T [.., out] from x [.., in] and W [out, in]; a partial sum if row-parallel. With
  /// `keeps_codes`, keeps the codes of x^T for weight_grad().
  [[nodiscard]] at::Tensor output(const at::Tensor& x, const at::Tensor& weight,
                                  bool keeps_codes = false);
  /// Computes grad_y W [.., in], after output(); a partial sum unless row-parallel. With
  /// `keeps_codes`, keeps the codes of grad_y^T for weight_grad().
  [[nodiscard]] at::Tensor input_grad(const at::Tensor& grad_y, const at::Tensor& weight,
                                      bool keeps_codes = false);
  /// Computes grad_y^T x [out, in], after input_grad(), and frees the kept codes. A factor with
  /// kept codes may be undefined.
  [[nodiscard]] at::Tensor weight_grad(const at::Tensor& x, const at::Tensor& grad_y);

 private:
  [[nodiscard]] bool rowwise() const { return scaling_->mode() == Fp8Mode::rowwise; }

  /// On a GPU, the kernels with one scale per row are fast only with fast sums.
  [[nodiscard]] bool has_fast_grads() const { return rowwise(); }

  [[nodiscard]] at::ScalarType format_of(Fp8Operand operand) const;

  /// Returns the scales of the rows of a and of b. With `shared`, the ranks of the group hold parts
  /// of each row.
  [[nodiscard]] std::array<at::Tensor, 2> row_scales(const at::Tensor& a, const at::Tensor& b,
                                                     bool shared) const;

  /// Returns `scale` or, with rowwise, the scales of the columns of x.
  [[nodiscard]] at::Tensor column_scale(const at::Tensor& x, const at::Tensor& scale) const;

  /// Returns the codes of x by rows. If `columns` is not null, sets it to the codes by columns.
  [[nodiscard]] ops::Fp8Matrix quantized(const at::Tensor& x, const at::Tensor& scale,
                                         Fp8Operand operand,
                                         ops::Fp8Matrix* columns = nullptr) const;

  /// Returns the kept codes by columns, or those of x.
  [[nodiscard]] ops::Fp8Matrix columns_of(ops::Fp8Matrix& kept, const at::Tensor& x,
                                          const at::Tensor& scale, Fp8Operand operand) const;

  Fp8Scaling* scaling_;
  std::int64_t linear_;
  const parallel::TensorGroup* group_;
  bool row_parallel_;
  at::ScalarType result_ = at::kFloat;
  at::Tensor scales_;             // [2]: of x and W; without rowwise
  at::Tensor grad_scale_;         // [1]: of grad_y; without rowwise
  ops::Fp8Matrix input_columns_;  // the codes of x^T, if output() keeps them
  ops::Fp8Matrix grad_columns_;   // the codes of grad_y^T, if input_grad() keeps them
};

}  // namespace trireme::model
