#include "train/step/graph_checks.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::train {
namespace {

/// Largest share of the device memory that graphs take with mode auto. Larger activations belong to
/// kernels that take longer than their launches.
constexpr double kAutoShare = 0.1;

/// Elements of a gradient buffer for which a norm needs temporary memory at one time.
constexpr std::int64_t kNormPart = std::int64_t{1} << 22;

/// Returns the 2-norm in fp64, without a copy of all values in fp64.
at::Tensor norm_in_parts(const at::Tensor& values) {
  at::Tensor sum = at::zeros({}, values.options().dtype(at::kDouble));
  for (const at::Tensor& part : values.split(kNormPart))
    sum.add_(part.to(at::kDouble).square().sum());
  return sum.sqrt();
}

}  // namespace

void check_graph_memory(const GraphMemory& memory, const std::string& mode) {
  if (mode == "auto" && memory.graphs > kAutoShare * memory.total) {
    fail(ErrorKind::resource,
         "graphs need {} of device memory. train.cuda_graph = auto uses at most a tenth of the {}, "
         "because graphs save time only if the activations are small. Set train.cuda_graph true to "
         "use graphs",
         format_bytes(memory.graphs), format_bytes(memory.total));
  }
  if (memory.left < memory.graphs) {
    fail(ErrorKind::resource,
         "graphs keep {} of device memory, and the {} that are left are too little for a "
         "micro-batch without a graph. A smaller train.micro_batch leaves more memory",
         format_bytes(memory.graphs), format_bytes(memory.left));
  }
}

std::optional<std::string> graph_difference(const at::Tensor& expected_grads,
                                            const at::Tensor& difference_of_grads,
                                            const at::Tensor& expected_loss, const at::Tensor& loss,
                                            double bound) {
  const at::Tensor numbers =
      at::stack({norm_in_parts(expected_grads), norm_in_parts(difference_of_grads),
                 expected_loss.abs(), (loss - expected_loss).abs()})
          .cpu();
  const double* value = numbers.const_data_ptr<double>();
  if (!std::isfinite(value[0]) || !std::isfinite(value[2])) return std::nullopt;
  std::string difference;
  const auto check = [&](const char* what, double norm, double apart) {
    if (apart <= bound * norm) return;  // a NaN only in the graph is an error
    difference = formatted(
        "the {} of a launched micro-batch differ from the expected ones by {} of their norm; "
        "rounding explains at most {}",
        what, number_text(apart / norm), number_text(bound));
  };
  check("losses", value[2], value[3]);
  check("gradients", value[0], value[1]);
  if (difference.empty() && value[0] == 0) return std::nullopt;
  return difference;
}

}  // namespace trireme::train
