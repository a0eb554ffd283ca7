#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "generate/load/load_model.hpp"

namespace trireme::generate {

/// The numbers of ranks that hold one model together (--parallel.tp and --parallel.pp).
struct ModelLayout {
  std::int64_t tp = 1;
  std::int64_t pp = 1;
};

/// This process among the ranks that hold one model together.
struct ModelRank {
  comm::Communicator& world;
  int local_rank = 0;
  int local_size = 1;
};

struct ModelPart {
  std::unique_ptr<LoadedModel> model;
  /// Hash of the whole model on rank 0: hash_weights(), or another value if the weights were
  /// rounded to int8 afterwards. "" with one rank.
  std::string weights_hash;
  comm::Communicator* pipeline = nullptr;  // the ranks of pp; null without stages
  std::int64_t stage_layers = 0;           // the largest number of layers of a stage; 0: no stages
};

/// Throws Error(usage) unless the layout has as many ranks as there are, and device and weights are
/// possible with several ranks.
void check_layout(const ModelLayout& layout, const ModelOptions& options, int num_ranks);

/// Collective. Loads this rank's part of the model: the layers of its stage, of these its heads, and
/// its parts of MLPs and vocabulary. With one rank, this is load_model(). Several ranks run on CPUs.
/// Throws like load_model() and comm::all_or_none(), and Error(usage) if the ranks cannot divide the
/// heads or the layers.
ModelPart load_on_ranks(const ModelOptions& options, const ModelLayout& layout,
                        const ModelRank& place);

}  // namespace trireme::generate
