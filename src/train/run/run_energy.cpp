#include "train/run/run_energy.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "comm/scalars.hpp"
#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "core/log.hpp"

namespace trireme::train {

RunEnergy::RunEnergy(comm::Communicator& world, Measures& measures, bool is_on, int local_rank,
                     device::EnergySources sources)
    : measures_(measures) {
  if (!is_on) return;
  const std::vector<std::uint64_t> gpus =
      comm::all_gather_value(world, xxh3_64(std::as_bytes(std::span(sources.gpu))), "energy");
  const auto lower_end = gpus.begin() + world.rank();
  if (std::find(gpus.begin(), lower_end, *lower_end) != lower_end) sources.gpu.clear();
  sources.reads_cpus = local_rank == 0;
  counters_.emplace(sources);
  const std::int64_t is_known = counters_->empty() ? 0 : 1;
  if (comm::all_reduce_value(world, is_known, comm::ReduceOp::max, "energy") == 0) return;
  energy_j_ = measures.declare({"energy_j", Combine::sum});
  const std::int64_t has_clock = counters_->gpu_clock_mhz() ? 1 : 0;
  if (comm::all_reduce_value(world, has_clock, comm::ReduceOp::max, "clocks") != 0) {
    clock_mhz_ = measures.declare({"gpu_clock_mhz", Combine::weighted_mean});
    clock_min_mhz_ = measures.declare({"gpu_clock_min_mhz", Combine::min});
  }
  if (world.rank() == 0)
    log::info(formatted("energy counters of rank 0: {}",
                        counters_->empty() ? "none" : counters_->names()));
}

void RunEnergy::record(double steps) {
  if (energy_j_) measures_.record(*energy_j_, counters_->take_joules() / steps);
  if (!clock_mhz_) return;
  const std::optional<double> clock_mhz = counters_->gpu_clock_mhz();
  measures_.record(*clock_mhz_, clock_mhz.value_or(0), clock_mhz ? 1 : 0);
  measures_.record(*clock_min_mhz_, clock_mhz.value_or(std::numeric_limits<double>::infinity()));
}

}  // namespace trireme::train
