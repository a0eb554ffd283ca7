#pragma once
#include <cstdint>

#include "train/cost/memory_formula.hpp"

/// Estimates of memory that memory_formula does not count, because a run does not report it.
namespace trireme {

/// Returns the bytes that the backward pass of one block needs in addition to the saved activations:
/// gradients of its widest tensors, and with activation checkpointing all that it computes again.
double block_backward_bytes(const UpdateFacts& facts);

/// Returns the bytes of gathered units on `rank`: `formula` (RankMemory::gathered_peak_bytes) if it is
/// known, else gathered weights, the unit of gradients that is filled, and the one that is sent.
double gathered_bytes(const UpdateFacts& facts, const RankMemory& formula, int rank);

/// Returns the bytes of the logits of at most `rows` tokens, at `bytes_each` a logit.
double logit_bytes(const UpdateFacts& facts, std::int64_t rows, double bytes_each);

}  // namespace trireme
