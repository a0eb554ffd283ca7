#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "parallel/param_registry.hpp"

/// Whole tensors out of what the ranks hold: for comparing layouts, of small models.
namespace trireme {

/// One parameter, in the order of all.
struct GatheredParam {
  std::string name;
  std::int64_t begin = 0;
  std::int64_t count = 0;

  [[nodiscard]] at::Tensor of(const at::Tensor& all) const { return all.narrow(0, begin, count); }
};

/// Of all that is declared, in id order.
std::vector<GatheredParam> gathered_params(const ParamRegistry& registry);

/// What all ranks hold.
class Gathering {
 public:
  /// `params`: of the whole model, in the order of the results; what this rank's `registry` has is
  /// among them. Both outlive this, and so does `world`, all ranks. All functions are collective.
  Gathering(const ParamRegistry& registry, std::vector<GatheredParam> params, Communicator& world)
      : registry_(registry), params_(std::move(params)), world_(world) {}

  /// Where this rank has all parameters.
  Gathering(const ParamRegistry& registry, Communicator& world)
      : Gathering(registry, gathered_params(registry), world) {}

  [[nodiscard]] const std::vector<GatheredParam>& params() const { return params_; }

  /// Every logical element of every parameter as fp64 on the host. `part_of(unit)`: this rank's part
  /// of a unit, as ParamRegistry::main_part; undefined: zeros.
  [[nodiscard]] at::Tensor all(const std::function<at::Tensor(std::size_t)>& part_of) const;

  /// Of what frozen parameters lack (gradients, moments): zeros for them.
  [[nodiscard]] at::Tensor trained(const std::function<at::Tensor(std::size_t)>& part_of) const;

  [[nodiscard]] at::Tensor weights() const;
  [[nodiscard]] at::Tensor grads() const;

 private:
  const ParamRegistry& registry_;
  std::vector<GatheredParam> params_;
  Communicator& world_;
};

inline at::Tensor gathered_weights(const ParamRegistry& registry, Communicator& world) {
  return Gathering(registry, world).weights();
}

inline at::Tensor gathered_grads(const ParamRegistry& registry, Communicator& world) {
  return Gathering(registry, world).grads();
}

}  // namespace trireme
