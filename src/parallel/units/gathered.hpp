#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "parallel/param_registry.hpp"

/// Assembles whole tensors from the ranks' parts: one by one, or all at once to compare layouts of
/// small models.
namespace trireme::parallel {

/// The range of one parameter in a tensor that contains all parameters.
struct GatheredParam {
  std::string name;
  std::int64_t begin = 0;
  std::int64_t count = 0;

  [[nodiscard]] at::Tensor of(const at::Tensor& all) const { return all.narrow(0, begin, count); }
};

/// Returns all declared parameters in id order.
std::vector<GatheredParam> gathered_params(const ParamRegistry& registry);

/// Copies the master weights that all ranks hold into `whole`, which declares all parameters of the
/// model on one rank, and refreshes its weights. Works for every layout of `parts`. Takes extra
/// memory for one parameter. Collective over the world of `parts`.
void copy_whole_weights(const ParamRegistry& parts, ParamRegistry& whole);

/// Gathers the tensors of all ranks. All functions are collective.
class Gathering {
 public:
  /// `params` lists the parameters of the whole model in the order of the results, including this
  /// rank's `registry`. `registry` and `world` (all ranks) must outlive this object.
  Gathering(const ParamRegistry& registry, std::vector<GatheredParam> params,
            comm::Communicator& world)
      : registry_(registry), params_(std::move(params)), world_(world) {}

  /// Uses the parameters of `registry`. For a rank that declares all parameters.
  Gathering(const ParamRegistry& registry, comm::Communicator& world)
      : Gathering(registry, gathered_params(registry), world) {}

  [[nodiscard]] const std::vector<GatheredParam>& params() const { return params_; }

  /// Returns every element of every parameter as fp64 on the host. `part_of(unit)` returns this
  /// rank's part of a unit, like ParamRegistry::master_part(); undefined means zeros.
  [[nodiscard]] at::Tensor all(const std::function<at::Tensor(std::size_t)>& part_of) const;

  /// Like all(), for gradients and optimizer state; frozen parameters get zeros.
  [[nodiscard]] at::Tensor trained(const std::function<at::Tensor(std::size_t)>& part_of) const;

  [[nodiscard]] at::Tensor weights() const;
  [[nodiscard]] at::Tensor grads() const;

 private:
  const ParamRegistry& registry_;
  std::vector<GatheredParam> params_;
  comm::Communicator& world_;
};

inline at::Tensor gathered_weights(const ParamRegistry& registry, comm::Communicator& world) {
  return Gathering(registry, world).weights();
}

inline at::Tensor gathered_grads(const ParamRegistry& registry, comm::Communicator& world) {
  return Gathering(registry, world).grads();
}

}  // namespace trireme::parallel
