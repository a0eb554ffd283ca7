#pragma once
#include <string>

#include "pipeline/simulate.hpp"

namespace trireme::pipeline {

/// Draws the schedule as SVG text. Each rank is a row, time runs to the right, and each action is a
/// box with its micro-batch number. Later stages of a rank are darker.
std::string draw(const Schedule& schedule, const Timing& timing);

}  // namespace trireme::pipeline
