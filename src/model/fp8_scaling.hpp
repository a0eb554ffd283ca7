#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <string>

#include "model/fp8_linears.hpp"
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
  Fp8Scaling(Fp8Mode mode, const ModelConfig& config);

  [[nodiscard]] Fp8Mode mode() const { return mode_; }

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

  /// Returns the fp32 scales [n] of `tensors`, which are n adjacent operands of a linear, beginning
  /// with `first`. `linear` is layer * kNumFp8Linears + matrix. With an empty history, `delayed`
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

  /// Computes x W^T [.., out] from x [.., in] and W [out, in]; a partial sum if row-parallel.
  [[nodiscard]] at::Tensor output(const at::Tensor& x, const at::Tensor& weight);
  /// Computes grad_y W [.., in], after output(); a partial sum unless row-parallel.
  [[nodiscard]] at::Tensor input_grad(const at::Tensor& grad_y, const at::Tensor& weight);
  /// Computes grad_y^T x [out, in], after input_grad().
  [[nodiscard]] at::Tensor weight_grad(const at::Tensor& x, const at::Tensor& grad_y) const;

 private:
  [[nodiscard]] bool rowwise() const { return scaling_->mode() == Fp8Mode::rowwise; }

  /// Multiplies rows by rows with one scale per row. With `shared`, the ranks of the group hold
  /// parts of each row.
  [[nodiscard]] at::Tensor rowwise_product(const at::Tensor& a, const at::Tensor& b,
                                           bool shared) const;

  Fp8Scaling* scaling_;
  std::int64_t linear_;
  const parallel::TensorGroup* group_;
  bool row_parallel_;
  at::Tensor scales_;      // [2]: of x and W; without rowwise
  at::Tensor grad_scale_;  // [1]: of grad_y; without rowwise
};

}  // namespace trireme::model
