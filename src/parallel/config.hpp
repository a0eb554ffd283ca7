#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/options.hpp"

namespace trireme {

class Problems;

}  // namespace trireme

namespace trireme::parallel {

/// The distribution over ranks. The data-parallel size is ranks / (tp * cp * pp).
struct ParallelConfig {
  std::int64_t tp = 1;
  std::int64_t cp = 1;
  std::int64_t pp = 1;
  std::int64_t ep = 1;
  std::int64_t etp = 0;
  std::int64_t zero = 0;
  std::int64_t zero_shard = 0;
  bool zero_reshard = true;
  std::string pp_regather = "micro_batch";
  std::int64_t zero_prefetch = 1;
  std::int64_t zero_persist = 0;
  bool sequence_parallel = false;
  std::int64_t tp_chunks = 1;
  std::string cp_form = "ring";
  std::string cp_balance = "zigzag";
  std::string recompute = "none";
  std::string schedule = "1f1b";
  std::int64_t virtual_stages = 1;
  std::int64_t in_flight = 0;
  std::string stages = "auto";
  double bucket_mb = -1;
  bool hierarchical = false;
  std::string shared_memory = "auto";
  std::int64_t local_steps = 1;
  std::string offload = "none";
  bool reproducible = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("tp", self.tp, "tensor-parallel ranks");
    visit("cp", self.cp, "context-parallel ranks");
    visit("cp_form", self.cp_form, "context-parallel attention: ring, all_gather or ulysses");
    visit("cp_balance", self.cp_balance,
          "token balance over cp: zigzag (2 cp chunks) or work (for rows of several documents)");
    visit("pp", self.pp, "pipeline-parallel ranks");
    visit("ep", self.ep, "expert-parallel ranks; must divide tp x cp x dp / etp");
    visit("etp", self.etp, "tensor-parallel ranks of each expert; must divide tp; 0: tp");
    visit("zero", self.zero,
          "ZeRO stage, 0 to 3: sharding of optimizer state, gradients, weights over data ranks");
    visit("zero_shard", self.zero_shard,
          "ranks that hold one copy of the ZeRO state; 0: all of dp x cp");
    visit("zero_reshard", self.zero_reshard,
          "ZeRO-3: free gathered weights after each use, not after the update");
    visit("pp_regather", self.pp_regather,
          "ZeRO-3 on a pipeline: gather weights for each micro_batch or once per update");
    visit("zero_prefetch", self.zero_prefetch, "ZeRO-3: units gathered ahead of the one in use");
    visit("zero_persist", self.zero_persist,
          "ZeRO-3: keep parameters with fewer elements than this whole on every rank");
    visit("sequence_parallel", self.sequence_parallel,
          "shard norms and residuals along the sequence over tp");
    visit("tp_chunks", self.tp_chunks,
          "token chunks, to overlap tp communication with matrix products; 1: no overlap");
    visit("recompute", self.recompute, "activation checkpointing: none, selective or full");
    visit("schedule", self.schedule,
          "pipeline schedule: gpipe, 1f1b, interleaved, zb-h1, zb-v, dualpipe-v, auto (searched "
          "with measured times), or a file from `trireme plan schedule`");
    visit("virtual_stages", self.virtual_stages,
          "pipeline stages per rank, for schedule interleaved or auto");
    visit("in_flight", self.in_flight,
          "schedule auto: maximum micro-batches in flight per rank, over its stages; 0: any");
    visit("stages", self.stages,
          "layers of each pipeline stage: auto (by cost) or a list such as E3|4|4|3H");
    visit("bucket_mb", self.bucket_mb,
          "size of a gradient bucket in MiB; 0: one bucket; -1: number of data ranks, 25 to 256");
    visit("hierarchical", self.hierarchical,
          "reduce gradients inside each node first, then between nodes");
    visit(
        "shared_memory", self.shared_memory,
        "CPU ranks of one node exchange large buffers through shared memory: auto (if available), "
        "true or false");
    visit(
        "local_steps", self.local_steps,
        "steps between averages of weights and optimizer state over data ranks; 1: no local steps");
    visit("offload", self.offload,
          "state in host memory: none, or optimizer (master weights and optimizer state)");
    visit("reproducible", self.reproducible,
          "give the same weights, bit for bit, for every dp, ZeRO stage and accumulation");
  }
};

/// Adds a problem for every value that is out of range.
void check(const ParallelConfig& config, Problems& problems);

/// Converts parallel.shared_memory, which check() accepts, to the option of communicators.
comm::SharedMemory shared_memory_option(const ParallelConfig& config);

/// Returns CommOptions::launch_order: false with pipeline parallelism, because stages start receives
/// of messages that depend on their later sends.
bool has_launch_order(const ParallelConfig& config);

/// Returns the divisors of `number` in ascending order.
std::vector<std::int64_t> divisors(std::int64_t number);

/// Returns true if tp x cp x pp divides `world_size` ranks.
bool divides(const ParallelConfig& config, int world_size);

/// Returns the size of the dp axis. Throws Error(usage) if tp x cp x pp does not divide the ranks.
int data_ranks(const ParallelConfig& config, int world_size);

/// Returns true if gathered ZeRO-3 weights stay until the update (zero_reshard, pp_regather).
bool keeps_gathered(const ParallelConfig& config);

/// Returns true if a rank does not hold the whole model in one piece.
bool divides_model(const ParallelConfig& config);

/// Returns the number of ranks that together hold one copy of the sharded state; 1 without ZeRO.
/// `data_ranks` is dp x cp. Throws Error(usage) if zero_shard does not divide `data_ranks`.
std::int64_t shard_ranks(const ParallelConfig& config, std::int64_t data_ranks);

/// Returns the number of ranks that split one expert: parallel.etp, or all of tp.
std::int64_t expert_tensor_ranks(const ParallelConfig& config);

/// Returns true if experts have a separate grid, tp x cp x dp = etp x ep x edp. Otherwise they are
/// split and replicated like other weights.
bool has_expert_grid(const ParallelConfig& config);

/// Returns edp, the number of ranks that hold the same experts. Throws Error(usage) if etp x ep
/// does not divide tp x cp x dp.
int expert_data_ranks(const ParallelConfig& config, int world_size);

/// Returns the number of edp ranks that together hold one copy of the sharded expert state. These
/// ranks are a subset of the ranks that hold one copy of the other weights. Throws Error(usage) if
/// the sizes do not divide.
int expert_shard_ranks(const ParallelConfig& config, int world_size);

/// Returns the bytes of a gradient bucket; 0 means one bucket.
std::int64_t bucket_bytes(const ParallelConfig& config, std::int64_t data_ranks);

}  // namespace trireme::parallel
