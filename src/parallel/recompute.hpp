#pragma once
#include <array>
#include <string_view>

namespace trireme::parallel {

/// Activation checkpointing of a block, as the part that backward recomputes: nothing; attention,
/// norms and the gated activation; everything except the block's input.
enum class Recompute { none, selective, full };

inline constexpr std::array<std::string_view, 3> kRecomputes{"none", "selective",
                                                             "full"};  // indexed by Recompute

}  // namespace trireme::parallel
