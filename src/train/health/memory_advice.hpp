#pragma once
#include <string>

#include "core/error.hpp"
#include "train/config/config.hpp"

namespace trireme::train {

/// Returns true for an error of a failed allocation on the host or on a GPU.
bool is_out_of_memory(const Error& error);

/// Returns the options that reduce a rank's memory, mildest first, one line each, with the current
/// and the reduced bytes of weights, gradients, optimizer state and activations
/// (cost/memory_formula). `config` is resolved; the run has `ranks` ranks.
std::string memory_advice(const RunConfig& config, int ranks);

}  // namespace trireme::train
