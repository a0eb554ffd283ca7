#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "generate/load/load_model.hpp"

namespace trireme::generate {

/// This process among the ranks that hold one model together (tensor parallelism).
struct ModelRank {
  comm::Communicator& world;
  int local_rank = 0;
  int local_size = 1;
};

struct ModelPart {
  std::unique_ptr<LoadedModel> model;
  std::string weights_hash;  // hash_weights() of the whole model; "" with one rank
};

/// Throws Error(usage) unless `tensor_ranks` (--parallel.tp) is the number of ranks, and the device
/// is possible with several ranks.
void check_tensor_ranks(std::int64_t tensor_ranks, const ModelOptions& options, int num_ranks);

/// Collective. Loads this rank's part of the model: its heads, and its parts of MLPs and
/// vocabulary. With one rank, this is load_model(). Several ranks run on CPUs. Throws like
/// load_model() and comm::all_or_none(), and Error(usage) if the ranks cannot divide the heads.
ModelPart load_on_ranks(const ModelOptions& options, const ModelRank& place);

}  // namespace trireme::generate
