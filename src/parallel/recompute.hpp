#pragma once
#include <array>
#include <string_view>

namespace trireme::parallel {

/// Activation checkpointing of a block. Backward recomputes:
///   none       only the activation of the MLP and, without tensor parallelism, RMSNorm: backward
///              reads their inputs anyway
///   selective  attention, norms and the activation of the MLP
///   full       everything except the input of the block
enum class Recompute { none, selective, full };

inline constexpr std::array<std::string_view, 3> kRecomputes{"none", "selective",
                                                             "full"};  // indexed by Recompute

}  // namespace trireme::parallel
