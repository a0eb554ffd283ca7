#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "parallel/param_registry.hpp"

/// Whole tensors out of what the ranks hold: for comparing layouts, of small models.
namespace trireme {

/// Every logical element of every parameter, in id order, as fp64 on the host. `part_of(unit)`:
/// this rank's part of a unit, as ParamRegistry::main_part; undefined: zeros. Collective over `world`, all ranks.
at::Tensor gathered(const ParamRegistry& registry, Communicator& world,
                    const std::function<at::Tensor(std::size_t)>& part_of);

/// Of what frozen parameters lack (gradients, moments): zeros for them.
at::Tensor gathered_trained(const ParamRegistry& registry, Communicator& world,
                            const std::function<at::Tensor(std::size_t)>& part_of);

at::Tensor gathered_weights(const ParamRegistry& registry, Communicator& world);
at::Tensor gathered_grads(const ParamRegistry& registry, Communicator& world);

/// One parameter, in the order of all.
struct GatheredParam {
  std::string name;
  std::int64_t begin = 0;
  std::int64_t count = 0;

  [[nodiscard]] at::Tensor of(const at::Tensor& all) const { return all.narrow(0, begin, count); }
};

std::vector<GatheredParam> gathered_params(const ParamRegistry& registry);

}  // namespace trireme
