#pragma once
#include <string>
#include <string_view>

#include "pipeline/schedule.hpp"

namespace trireme::pipeline {

/// A schedule as text: a line a rank, its passes in order ("F0.0 F0.1 BW0.0"); '#' begins a comment.
std::string text_of(const Schedule& schedule);

/// Reads such a text. Stages and micro-batches are as many as it names. Throws Error(usage) naming
/// `source`, the line and what is wrong: a word, a pass too many or missing, or the first that can
/// never begin.
Schedule parse_schedule(std::string_view text, const std::string& source);

}  // namespace trireme::pipeline
