#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

class Problems;

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
  std::int64_t local_steps = 1;
  std::string offload = "none";
  bool reproducible = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("tp", self.tp, "tensor-parallel ranks");
    visit("cp", self.cp, "context-parallel ranks");
    visit("cp_form", self.cp_form,
          "how attention meets keys of other ranks: ring, all_gather or ulysses");
    visit("cp_balance", self.cp_balance,
          "tokens dealt zigzag (2 cp chunks) or by work (inside documents)");
    visit("pp", self.pp, "pipeline-parallel ranks");
    visit("ep", self.ep, "ranks that experts are dealt over, of tp x cp x dp / etp");
    visit("etp", self.etp, "ranks of tp that cut each expert's width: a divisor of tp; 0: all");
    visit("zero", self.zero, "ZeRO stage, 0 to 3: what data ranks hold together, not each");
    visit("zero_shard", self.zero_shard, "ranks that share one copy under ZeRO; 0: all of dp x cp");
    visit("zero_reshard", self.zero_reshard,
          "ZeRO-3: free gathered weights after each use, not after the update");
    visit("pp_regather", self.pp_regather,
          "ZeRO-3 on a pipeline: weights are gathered for each micro_batch, or once an update");
    visit("zero_prefetch", self.zero_prefetch, "ZeRO-3: units gathered ahead of the one in use");
    visit("zero_persist", self.zero_persist,
          "ZeRO-3: parameters of fewer elements stay whole on every rank");
    visit("sequence_parallel", self.sequence_parallel, "split norms and residuals over tp");
    visit("tp_chunks", self.tp_chunks,
          "pieces in which a row's tokens enter and leave a block over tp, beside its products");
    visit("recompute", self.recompute, "what backward computes again: none, selective or full");
    visit("schedule", self.schedule,
          "order of a pipeline's passes: gpipe, 1f1b, interleaved, zb-h1, zb-v, dualpipe-v, auto "
          "(searched by the measured times of passes), or a file as plan schedule prints it");
    visit("virtual_stages", self.virtual_stages,
          "stages on each rank of pp, with schedule interleaved or auto");
    visit("in_flight", self.in_flight,
          "schedule auto: stage-micro-batches under way on a rank at most; 0: any");
    visit("stages", self.stages, "layers of each stage: auto (by cost), or E3|4|4|3H");
    visit("bucket_mb", self.bucket_mb,
          "MiB of gradients in a bucket; 0: one bucket; -1: as many as data ranks, 25 to 256");
    visit("hierarchical", self.hierarchical, "reduce inside a node first, then between nodes");
    visit("local_steps", self.local_steps,
          "steps that data ranks train on their own before weights and moments are averaged");
    visit("offload", self.offload,
          "what lies in host memory: none, or optimizer (main weights and moments)");
    visit("reproducible", self.reproducible,
          "the same weights, bit for bit, for every dp, ZeRO stage and accumulation");
  }
};

/// Adds a problem for every value that is out of range.
void check(const ParallelConfig& config, Problems& problems);

/// Returns the divisors in ascending order.
std::vector<std::int64_t> divisors(std::int64_t number);

/// Returns true if tp x cp x pp divides `world_size` ranks.
bool divides(const ParallelConfig& config, int world_size);

/// Returns the size of the dp axis. Throws Error(usage) if tp x cp x pp does not divide the ranks.
int data_ranks(const ParallelConfig& config, int world_size);

/// Returns true if gathered ZeRO-3 weights stay until the update (zero_reshard, pp_regather).
bool keeps_gathered(const ParallelConfig& config);

/// Returns how many of the dp x cp = `data_ranks` ranks together hold one copy of the sharded
/// state; 1 without ZeRO. Throws Error(usage) if zero_shard does not divide them.
std::int64_t shard_ranks(const ParallelConfig& config, std::int64_t data_ranks);

/// Returns the number of ranks that split one expert: parallel.etp, or all of tp.
std::int64_t expert_tensor_ranks(const ParallelConfig& config);

/// Returns true if experts have a separate grid, tp x cp x dp = etp x ep x edp. Otherwise they are
/// split and replicated like other weights.
bool folds_experts(const ParallelConfig& config);

/// Returns edp, the number of ranks that hold the same experts. Throws Error(usage) if etp x ep
/// does not divide tp x cp x dp.
int expert_data_ranks(const ParallelConfig& config, int world_size);

/// Returns how many of these edp ranks together hold one copy of the sharded state. They lie among
/// the ranks that hold one copy of other weights. Throws Error(usage) if the sizes do not divide.
int expert_shard_ranks(const ParallelConfig& config, int world_size);

/// Returns the bytes of a gradient bucket; 0 means one bucket.
std::int64_t bucket_bytes(const ParallelConfig& config, std::int64_t data_ranks);

}  // namespace trireme
