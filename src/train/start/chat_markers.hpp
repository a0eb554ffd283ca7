#pragma once
#include "train/start/run_data.hpp"
#include "train/start/run_start.hpp"

namespace trireme {

/// Checks that the tokenizer of each training and validation set has the markers of the set's chat
/// format as tokens: a model that learns them as ordinary text does not end its answers with a token.
/// Throws Error(usage) for the first set that lacks one, unless data.allow_missing_markers is set.
/// Returns a warning, "" if nothing is missing, where it is set and for a run that goes on, which began
/// with these sets.
std::string check_chat_markers(const RunData& data, bool is_allowed, RunStart::Kind start);

}  // namespace trireme
