#pragma once
#include <string>

#include "pipeline/simulate.hpp"

namespace trireme::pipeline {

/// A picture as SVG text: a row a rank, time to the right, passes as boxes with the numbers of their
/// micro-batches; later stages of a rank are darker.
std::string draw(const Schedule& schedule, const Timing& timing);

}  // namespace trireme::pipeline
