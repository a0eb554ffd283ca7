#pragma once
#include <array>
#include <string_view>

namespace trireme {

/// What backward computes again of a block instead of keeping it: nothing; attention, norms and the
/// gated activation; all but its input.
enum class Recompute { none, selective, full };

inline constexpr std::array<std::string_view, 3> kRecomputes{"none", "selective",
                                                             "full"};  // by value

}  // namespace trireme
