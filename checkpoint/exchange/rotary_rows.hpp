#pragma once
#include <cstdint>

namespace trireme::checkpoint {

/// Returns the row in the order of transformers and llama.cpp of a row of queries or keys. The row
/// differs only with a partial rotary embedding: Trireme rotates element i of a head with
/// i + head_dim / 2 and leaves the last pairs as they are. The other programs rotate i with
/// i + rotated_dim / 2, so a head begins with the rotated elements. The order changes no attention
/// score.
std::int64_t partial_rotary_row(std::int64_t row, std::int64_t head_dim, std::int64_t rotated_dim);

}  // namespace trireme::checkpoint
