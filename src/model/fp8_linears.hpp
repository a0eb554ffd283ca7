#pragma once
#include <array>
#include <cstddef>
#include <string_view>

#include "model/config.hpp"

namespace trireme::model {

/// Scaling of the linears that are multiplied in fp8 (train.fp8).
///   tensorwise  one scale per tensor, from the tensor itself
///   rowwise     one scale per row of each factor, from the row itself
///   delayed     one scale per tensor, from the largest values of the last updates
enum class Fp8Mode { off, tensorwise, rowwise, delayed };

inline constexpr std::array<std::string_view, 4> kFp8Modes{"off", "tensorwise", "rowwise",
                                                           "delayed"};  // indexed by Fp8Mode

/// The matrices of a dense block. Queries, keys and values form one matrix, and gate and up form
/// one matrix.
enum class Fp8Linear : std::size_t { qkv, output, gate_up, down };

inline constexpr std::size_t kNumFp8Linears = 4;

/// Returns which matrices are multiplied in fp8, indexed by Fp8Linear: those with at least 128 rows
/// and columns, both divisible by 16, over all ranks of tp. Embedding, head, router, experts, norms
/// and adapters never are.
std::array<bool, kNumFp8Linears> fp8_linears(const ModelConfig& config);

/// The numbers of rows and columns that a rank of tp holds must be divisible by this number.
inline constexpr std::int64_t kFp8Divisor = 16;

}  // namespace trireme::model
