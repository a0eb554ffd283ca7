#pragma once
#include <vector>

#include "parallel/units/unit_grads.hpp"

namespace trireme {

/// Adds up gradients of parameters whose elements several tp ranks hold while each rank computes a
/// part of the gradient. These are key heads that query heads of several ranks read, norms of
/// heads, and with sequence parallelism every norm. The sum runs before the reduction over data
/// ranks.
class SharedGrads {
 public:
  SharedGrads() = default;
  SharedGrads(std::span<const ParamSpec> specs, const UnitLayout& layout, Communicator& tp);

  /// Collective over tp: one all-reduce for a unit whose gradients are complete on every rank.
  void sum(std::size_t unit, const at::Tensor& whole) const;

 private:
  struct Shared {
    ParamId id = 0;
    std::int64_t begin = 0;  // index of the first element in the message
    std::vector<std::int64_t> shape;
  };

  const UnitLayout* layout_ = nullptr;
  Communicator* tp_ = nullptr;
  std::vector<std::vector<Shared>> of_unit_;
};

}  // namespace trireme
