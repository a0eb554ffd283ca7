#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/mesh.hpp"
#include "pipeline/pass.hpp"
#include "pipeline/simulate.hpp"

namespace trireme {

/// How long a rank's passes take, as updates run: what a schedule is searched by.
class PassClock {
 public:
  explicit PassClock(int stages) : least_(static_cast<std::size_t>(stages)) {}

  /// `seconds` without waiting for other ranks. The least of each stage and kind counts.
  void note(const pipeline::Pass& pass, double seconds);

  /// Of all stages, and of a message like `cargo` between neighbours: the slowest of all ranks, the same
  /// on each. Collective over the world.
  [[nodiscard]] pipeline::Timing of_all(const Mesh& mesh, const at::Tensor& cargo) const;

 private:
  struct Least {
    double forward = 0;
    double backward = 0;
    double input_grad = 0;
    double weight_grad = 0;
  };

  std::vector<Least> least_;
};

}  // namespace trireme
