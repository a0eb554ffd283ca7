#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/path.hpp"

/// Matrix products of experts with their rows: expert e has rows [bounds[e], bounds[e + 1]) of R.
namespace trireme::ops {

/// The row bounds of all experts. They are either on the host or on the device: the first call of
/// host() moves them to the host. Copies of an object share their values.
class ExpertBounds {
 public:
  ExpertBounds() = default;
  ExpertBounds(std::vector<std::int64_t> host);  // NOLINT: bounds on the host need no device
  /// `on_device` [E + 1] int64.
  explicit ExpertBounds(at::Tensor on_device);

  /// Returns the E + 1 bounds, from 0 to the number of rows. Waits for the device if only the device
  /// has them.
  [[nodiscard]] const std::vector<std::int64_t>& host() const;

  /// Returns the end of each expert's rows on `device`, [E] int32. Does not wait.
  [[nodiscard]] const at::Tensor& ends(at::Device device) const;

 private:
  struct Copies {
    std::vector<std::int64_t> host;
    at::Tensor on_device;
    at::Tensor ends;
  };

  std::shared_ptr<Copies> copies_;
};

/// Multiplies rows [R, in] with their expert's transposed matrix of weights [E, out, in]: [R, out].
at::Tensor grouped_product(const at::Tensor& rows, const at::Tensor& weights,
                           const ExpertBounds& bounds, Path path);
/// Adds a^T b of each expert's rows, with a [R, out] and b [R, in], to sums [E, out, in].
void add_grouped_outer(const at::Tensor& a, const at::Tensor& b, const ExpertBounds& bounds,
                       const at::Tensor& sums, Path path);

/// Like the functions above, with ATen's grouped kernel: one launch for all experts. `ends` [E]
/// int32 on the device is the end of each expert's rows. Without a kernel ATen waits and loops.
at::Tensor aten_grouped_product(const at::Tensor& rows, const at::Tensor& weights,
                                const at::Tensor& ends);
at::Tensor aten_grouped_outer(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends);

}  // namespace trireme::ops
