#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "parallel/param_registry.hpp"

namespace trireme::optim {

/// A contiguous range of this rank's shard of an FSDP unit.
struct FlatRange {
  std::size_t unit = 0;
  std::int64_t begin = 0;  // index in the local shard
  std::int64_t count = 0;

  [[nodiscard]] at::Tensor weights(const parallel::ParamRegistry& registry) const {
    return registry.master_part(unit).narrow(0, begin, count);
  }

  [[nodiscard]] at::Tensor grads(const parallel::ParamRegistry& registry) const {
    return registry.update_grad(unit).narrow(0, begin, count);
  }

  /// Returns the weights that the model computes with; undefined if they are the master weights.
  [[nodiscard]] at::Tensor copies(parallel::ParamRegistry& registry) const {
    if (registry.main_bytes() == 0) return {};
    return registry.weights().part(unit).narrow(0, begin, count);
  }

  /// Returns the same elements of a buffer that registry.make_state() made.
  [[nodiscard]] at::Tensor state(const parallel::ParamRegistry& registry,
                                 const at::Tensor& flat) const {
    return registry.part_of(flat, unit).narrow(0, begin, count);
  }
};

/// The elements of one parameter that this rank updates.
struct ParamRange {
  parallel::ParamId id = 0;
  parallel::Slice slice;  // coordinates in the global tensor, of shape registry.spec(id).shape
  FlatRange elements;     // slice.count() elements, then the padding of the parameter
};

/// Returns the ranges of all trainable parameters in this rank's shards, in the order of the
/// shards. ZeRO may split a unit anywhere, so a range may begin or end inside a row of its matrix.
std::vector<ParamRange> param_ranges(const parallel::ParamRegistry& registry);

/// Neighbouring elements that an optimizer can update in one call.
struct UpdateRange {
  FlatRange elements;
  bool decay = false;  // weight decay applies
};

/// Merges adjacent ranges with the same weight decay. Padding is included, so that vectorized
/// kernels process the same full vectors wherever a unit is split. Parameters with a sign_rate are
/// omitted, because SignStep updates them.
std::vector<UpdateRange> update_ranges(const parallel::ParamRegistry& registry,
                                       std::span<const ParamRange> params);

/// Updates the parameters that no optimizer updates (ParamSpec::sign_rate): moves each element by
/// the rate against the sign of its gradient.
class SignStep {
 public:
  /// The registry must be allocated and must outlive this object.
  explicit SignStep(const parallel::ParamRegistry& registry);

  /// Returns true if there are no such parameters.
  [[nodiscard]] bool empty() const { return targets_.empty(); }

  /// Called when gradients are final. Only their sign matters.
  void step() const;

 private:
  struct Target {
    at::Tensor weights;
    at::Tensor grads;
    double rate;
  };

  std::vector<Target> targets_;
};

}  // namespace trireme::optim
