#pragma once
#include <string>
#include <string_view>

#include "pipeline/schedule.hpp"

namespace trireme::pipeline {

/// Returns the schedule as text, one line for each rank: "F0.0 F0.1 BW0.0".
std::string text_of(const Schedule& schedule);

/// Parses the text of a schedule; '#' begins a comment. The numbers of stages and micro-batches
/// follow from the actions. Throws Error(usage) with `source`, the line and the mistake: an invalid
/// word, a repeated or missing action, or the first action that can never start.
Schedule parse_schedule(std::string_view text, const std::string& source);

}  // namespace trireme::pipeline
