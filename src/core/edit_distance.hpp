#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

/// Finds the known option, key, command, preset or file nearest to a mistyped word.
namespace trireme {

/// Returns the optimal string alignment distance in bytes: insertions, deletions, replacements and
/// swaps of two neighbors cost 1 each.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the nearest candidate within `max_distance`, the first one of several; "" if there is
/// none. The distance must also be less than the length of the longer word, so that a very short
/// word does not match a candidate with no common letter. If no candidate is within 1, the only
/// candidate that begins with `word` (3 bytes or more) is the nearest.
std::string nearest(std::string_view word, std::span<const std::string> candidates,
                    std::size_t max_distance = 2);

/// Returns "; did you mean 'optim.lr'?" for the end of an error message, or "" without a match.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace trireme
