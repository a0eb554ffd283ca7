#include "ops/path.hpp"

namespace trireme::ops {

bool takes_fast_path(Path path, const at::Tensor& x) {
  return path == Path::fast && x.device().is_cpu() &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

at::ScalarType accumulate_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace trireme::ops
