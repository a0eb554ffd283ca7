#pragma once
#include <string>

#include "core/error.hpp"
#include "train/config/config.hpp"

namespace trireme::train {

/// Returns true for an error of a failed allocation on the host or on a GPU.
bool is_out_of_memory(const Error& error);

/// Returns the options that reduce a rank's memory, mildest first, one line each, with the current
/// and the reduced bytes of weights, gradients, optimizer state and activations of the trained
/// model (cost/memory_formula). `config` is resolved; the run has `ranks` ranks. `rows_per_sample`
/// is Task::rows_per_sample().
std::string memory_advice(const RunConfig& config, int ranks, std::int64_t rows_per_sample = 1);

}  // namespace trireme::train
