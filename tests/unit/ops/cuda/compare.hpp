#pragma once
#include <string>
#include <vector>

#include "support/cuda_launcher.hpp"
#include "unit/ops/support.hpp"

/// Compares a kernel on the host with the plain path in fp64.
namespace trireme::ops::testing {

struct CudaCase {
  at::ScalarType dtype;
  double tolerance;  // one rounding of the result: bf16 keeps 8 bits, fp16 11
};

inline const std::vector<CudaCase>& cuda_cases() {
  static const std::vector<CudaCase> cases{
      {at::kFloat, 1e-5}, {at::kHalf, 8e-4}, {at::kBFloat16, 6e-3}};
  return cases;
}

/// Calls body(case, label, launcher) for each dtype, in fp32 with the threads of the blocks in both
/// orders.
template <class Body>
void for_cuda_cases(const Body& body) {
  trireme::testing::HostLauncher host;
  for (const CudaCase& one : cuda_cases()) {
    for (const bool backwards : {false, true}) {
      if (backwards && one.dtype != at::kFloat) continue;
      host.backwards = backwards;
      body(one, std::string(at::toString(one.dtype)) + (backwards ? " backwards " : " forwards "),
           host);
    }
  }
}

/// Returns x with fp64 elements; an undefined tensor stays undefined.
inline at::Tensor exact(const at::Tensor& x) {
  return x.defined() ? x.to(at::kDouble) : x;
}

}  // namespace trireme::ops::testing
