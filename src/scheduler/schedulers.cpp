#include <array>

#include "scheduler/scheduler.hpp"
#include "scheduler/slurm/slurm.hpp"

namespace trireme::scheduler {

std::span<const Scheduler* const> schedulers() noexcept {
  static const std::array<const Scheduler*, 1> table{&slurm()};
  return table;
}

}  // namespace trireme::scheduler
