#pragma once
#include <array>
#include <string_view>

namespace trireme::parallel {

/// Activation checkpointing of a block. Backward recomputes nothing (none), attention, norms and
/// the gated activation (selective), or everything from the block's input (full).
enum class Recompute { none, selective, full };

inline constexpr std::array<std::string_view, 3> kRecomputes{"none", "selective",
                                                             "full"};  // indexed by Recompute

}  // namespace trireme::parallel
