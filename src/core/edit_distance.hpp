#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

/// "did you mean": the nearest known word to a mistyped one. Shared by options, config keys,
/// commands, presets and files.
namespace trireme {

/// Optimal string alignment distance: insert, delete, replace or swap two neighbours, each 1.
/// Bytes, not characters.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word` within `max_distance`, the first of equals; "" when none is near
/// enough. A candidate that shares nothing with a very short word is never near: the distance must
/// be less than its length.
std::string nearest(std::string_view word, std::span<const std::string> candidates,
                    std::size_t max_distance = 2);

/// "; did you mean 'optim.lr'?" or "" when nothing is near: the end of an error message.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace trireme
