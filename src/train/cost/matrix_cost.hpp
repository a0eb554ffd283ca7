#pragma once
#include <vector>

#include "train/cost/collectives_formula.hpp"

namespace trireme::train {

/// Adds the collectives with which an optimizer of whole matrices (muon) gathers the matrices on
/// their owners and scatters the results.
void add_matrix_rows(const UpdateFacts& facts, int rank, std::vector<CollectiveRow>& rows);

/// Returns the floating-point operations of one rank, on average, to orthogonalize the matrices of
/// all blocks; 0 for other optimizers and with LoRA, where matrices are small.
double matrix_flops(const UpdateFacts& facts);

/// Returns the bytes of the messages that a rank holds while the optimizer runs, when no
/// activations are saved: those that it sends and those that it receives. `state_bytes` are the
/// bytes of optimizer state of the rank.
double matrix_message_bytes(const UpdateFacts& facts, double state_bytes);

}  // namespace trireme::train
