#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

/// Times of collectives with the definitions of nccl-tests (PERFORMANCE.md there).
namespace trireme::train {

/// Returns the names of the operations: all_reduce, reduce_scatter, all_gather, all_to_all,
/// broadcast, send_recv (each rank sends to the next one).
std::vector<std::string> collective_names();

/// Returns busbw / algbw: the share of the size that crosses the slowest link, for `ranks` ranks.
double bus_factor(const std::string& op, int ranks);

struct CollectiveTime {
  std::string op;
  std::int64_t bytes = 0;  // size of the whole tensor: for all_gather its output, and so on
  double time_s = 0;       // mean over repetitions and ranks

  /// Returns bytes / time in GB/s (10^9 bytes).
  [[nodiscard]] double algbw() const { return static_cast<double>(bytes) / time_s / 1e9; }

  [[nodiscard]] double busbw(int ranks) const { return algbw() * bus_factor(op, ranks); }
};

/// Measures one operation in fp32. The size is rounded down to whole elements per rank. `control`:
/// communicator on the host; `world`: ranks that are measured, the same or on GPUs. Each operation
/// runs for about `seconds`. Collective.
CollectiveTime measure_collective(comm::Communicator& control, comm::Communicator& world,
                                  at::Device device, const std::string& op, std::int64_t bytes,
                                  double seconds);

/// Returns the sizes from `least` to `most` with factor 2.
std::vector<std::int64_t> collective_sizes(std::int64_t least, std::int64_t most);

}  // namespace trireme::train
