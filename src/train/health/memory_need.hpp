#pragma once
#include <string>
#include <vector>

#include "comm/session.hpp"
#include "config/config_set.hpp"
#include "core/process/machine_memory.hpp"
#include "parallel/param_registry.hpp"
#include "train/config/config.hpp"
#include "train/cost/update_facts.hpp"

/// Bytes of a run, counted before they are taken.
namespace trireme {

struct MemoryPart {
  std::string what;
  double bytes = 0;
  std::vector<std::string> keys = {};  // what makes it large
};

/// Of a model that the task holds beside the one it trains.
struct FrozenParameters {
  double count = 0;
  double experts = 0;    // of them, those of routed experts
  std::string key = {};  // that names it; "": it has the trained one's shape
};

/// What one rank of `data_ranks` (dp x cp) surely holds at once while it trains: weights, with LoRA
/// frozen ones too, gradients, moments, as ZeRO leaves them, rotary tables and each block's input of one
/// micro-batch. All else (activations inside a block, buckets,
/// LibTorch itself) comes on top. `offloaded`: main weights and moments lie elsewhere. The
/// configuration is resolved.
std::vector<MemoryPart> memory_need(const RunConfig& config, ParamDTypes dtypes,
                                    std::int64_t data_ranks = 1, bool offloaded = false,
                                    const FrozenParameters& beside = {});

/// Of `parts` (memory_need), inputs of the blocks become all activations of `rank`, where their
/// formula is known.
void count_activations(const RunConfig& config, int ranks, int rank,
                       std::vector<MemoryPart>& parts);

/// Throws if `ranks`, which share the memory called `place` ("host a7"), need more: Error(usage) if
/// it could never hold them, Error(resource) if it is taken at the moment. The message has the sum,
/// its parts and the keys of the largest one.
void check_memory(const std::vector<MemoryPart>& parts, int ranks, const MachineMemory& memory,
                  const std::string& place, const ConfigSet& keys);

/// The same for a run on `ranks` ranks, before this one allocates on its device, on a CPU with all
/// activations of a micro-batch. `config` is resolved, `keys` are its; `whole_rows`: rows are as long
/// as train.seq_len, not as their pairs; `beside` as above.
void check_room(const RunConfig& config, const LaunchInfo& launch, int ranks, const ConfigSet& keys,
                bool whole_rows = true, const FrozenParameters& beside = {});

}  // namespace trireme
