#pragma once
#include <vector>

#include "parallel/units/unit_grads.hpp"

namespace trireme {

/// Parameters of which several ranks of tp hold the same elements and each forms a part of their
/// gradient: key heads that query heads of several ranks read, norms of heads, and with sequence
/// parallelism every norm. Their gradients are added up before they leave for the data ranks.
class SharedGrads {
 public:
  SharedGrads() = default;
  SharedGrads(std::span<const ParamSpec> specs, const UnitLayout& layout, Communicator& tp);

  /// Adds up those of a unit, whose gradients are complete on every rank: one all-reduce.
  void sum(std::size_t unit, const at::Tensor& whole) const;

 private:
  struct Shared {
    ParamId id = 0;
    std::int64_t begin = 0;  // element of the message
    std::vector<std::int64_t> shape;
  };

  const UnitLayout* layout_ = nullptr;
  Communicator* tp_ = nullptr;
  std::vector<std::vector<Shared>> of_unit_;
};

}  // namespace trireme
