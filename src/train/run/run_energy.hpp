#pragma once
#include <optional>
#include <string>

#include "comm/communicator.hpp"
#include "core/measures.hpp"
#include "device/energy_counters.hpp"

namespace trireme::train {

/// Reports the energy of a step over all nodes and GPUs as the measure energy_j, and the clocks of
/// the GPUs at the end of the step as gpu_clock_mhz (mean) and gpu_clock_min_mhz. The first rank of
/// each node reads the counters of the CPUs, and the first rank of each GPU the counter of the GPU.
/// If no rank can read a counter or a clock, there is no measure of it.
class RunEnergy {
 public:
  /// `sources`: the counters of this rank, if it were alone on its node and GPU. `local_rank`: rank
  /// on the node. Collective over `world` if `is_on`.
  RunEnergy(comm::Communicator& world, Measures& measures, bool is_on, int local_rank,
            device::EnergySources sources);

  /// Records the energy per step since the last call, which was `steps` steps ago, and the clocks.
  void record(double steps);

 private:
  Measures& measures_;
  std::optional<device::EnergyCounters> counters_;
  std::optional<Measures::Id> energy_j_;
  std::optional<Measures::Id> clock_mhz_;
  std::optional<Measures::Id> clock_min_mhz_;
};

}  // namespace trireme::train
