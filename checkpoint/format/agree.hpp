#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "core/error.hpp"

/// Errors and small texts between ranks, so that every rank leaves a collective
/// step with the same outcome.
namespace trireme {

/// Runs `work` and returns what it threw; a foreign exception as current_error
/// (core/files/refusal.hpp) says.
std::optional<Error> capture(const std::function<void()>& work);

/// Collective. If any rank brings an error, all throw the one of the lowest such rank, its message
/// led by "rank N: ".
void agree(Communicator& world, const std::optional<Error>& mine);

/// Collective. Rank 0's text, on every rank.
std::string broadcast_text(Communicator& world, const std::string& text, int root = 0);

/// Collective. On rank 0 the texts of all ranks, elsewhere empty.
std::vector<std::string> gather_texts(Communicator& world, const std::string& text);

/// Collective. Throws Error(internal) naming `what` unless `text` is the same on all ranks.
void check_equal(Communicator& world, std::string_view text, std::string_view what);

}  // namespace trireme
