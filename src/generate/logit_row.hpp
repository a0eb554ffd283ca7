#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "generate/request.hpp"
#include "text/tokenizer.hpp"

/// Functions on the logits of one token position, in host memory.
namespace trireme::generate {

/// Copies one row of logits (fp32 or fp64, in host memory) to `out`.
void copy_row(const at::Tensor& logits, std::int64_t row, std::vector<double>& out);

/// Throws Error(numeric) with `reason` unless all logits are finite.
void check_finite(std::span<const double> logits, std::int64_t num_tokens, const char* reason);

/// Returns the ids below `vocab_size` that are not tokens: padding rows of the embedding, and gaps
/// in the vocabulary. A tokenizer without text (Tokenizer::ids_only) has no bytes for any id, so
/// only its number of ids counts.
std::vector<std::uint32_t> unused_ids(const text::Tokenizer& tokenizer, std::int64_t vocab_size);

/// Sets the logits of all ids that the mask excludes to -inf. Throws Error(internal) if no id is
/// left.
void apply_mask(TokenMask& mask, std::span<double> logits);

}  // namespace trireme::generate
