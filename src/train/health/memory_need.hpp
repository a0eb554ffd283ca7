#pragma once
#include <string>
#include <vector>

#include "comm/session.hpp"
#include "config/config_set.hpp"
#include "core/process/machine_memory.hpp"
#include "parallel/param_registry.hpp"
#include "train/config/config.hpp"
#include "train/cost/update_facts.hpp"

/// Estimates the memory of a run before it is allocated.
namespace trireme::train {

struct MemoryPart {
  std::string what;
  double bytes = 0;
  std::vector<std::string> keys = {};  // configuration keys that determine its size
};

/// A model that a run holds beside the trained one.
struct ModelBeside {
  enum class Kind {
    frozen,  // only weights, on the layout of the trained model
    critic,  // trained: shape and layout of the trained model, no adapters
    copy,    // weights of the whole trained model on each rank, to generate answers
  };
  Kind kind = Kind::frozen;
  double count = 0;      // frozen: parameters
  double experts = 0;    // frozen: part of `count` in routed experts
  std::string key = {};  // frozen: its configuration key; "": it has the shape of the trained model
};

/// Returns the minimum memory of one rank out of `data_ranks` (dp x cp) during training: weights
/// (including frozen ones), gradients, optimizer state (as ZeRO shards them), rotary tables and
/// the block inputs of one micro-batch. Activations inside a block, buckets and LibTorch itself
/// need more. `offloaded`: master weights and optimizer state are not in this memory. `config` is
/// resolved.
std::vector<MemoryPart> memory_need(const RunConfig& config, device::ParamDTypes dtypes,
                                    std::int64_t data_ranks = 1, bool offloaded = false,
                                    const std::vector<ModelBeside>& beside = {});

/// Replaces the block inputs in `parts` by all activations of `rank`, if their formula is known.
void count_activations(const RunConfig& config, int ranks, int rank,
                       std::vector<MemoryPart>& parts);

/// Throws if `ranks` ranks, which share the memory `place` ("host a7"), need more than it has.
/// Throws Error(usage) if they never fit, Error(resource) if the memory is only in use now. The
/// message has the sum, its parts and the keys of the largest part.
void check_memory(const std::vector<MemoryPart>& parts, int ranks, const MachineMemory& memory,
                  const std::string& place, const config::ConfigSet& keys);

/// Checks the memory of a run on `ranks` ranks before this rank allocates on its device. On a CPU,
/// all activations of a micro-batch count. `config` is resolved and read by `keys`. `whole_rows`:
/// rows have train.seq_len tokens, not the length of preference pairs. `beside`: other models.
void check_free_memory(const RunConfig& config, const comm::LaunchInfo& launch, int ranks,
                       const config::ConfigSet& keys, bool whole_rows = true,
                       const std::vector<ModelBeside>& beside = {});

}  // namespace trireme::train
