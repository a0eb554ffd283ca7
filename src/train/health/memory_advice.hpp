#pragma once
#include <string>

#include "core/error.hpp"
#include "train/config/config.hpp"

namespace trireme {

/// True for an error that an allocation refused by the system, or by a GPU's allocator, became.
bool is_out_of_memory(const Error& error);

/// What lowers the memory of a rank of a run on `ranks`, the mildest first: a line an option, with
/// the bytes of weights, gradients, moments and activations by formula (train/cost/memory_formula)
/// now and then. `config` is resolved.
std::string memory_advice(const RunConfig& config, int ranks);

}  // namespace trireme
