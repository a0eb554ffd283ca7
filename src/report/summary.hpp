#pragma once
#include <string>

#include "report/run_report.hpp"

namespace trireme::report {

/// Returns a paragraph about the run in plain words: state, progress, loss, throughput, goodput,
/// failures, slow ranks. Leaves out what is unknown.
std::string summary_of(const RunReport& run);

/// Returns true if the attempt ended by a failure: not done, not stopped on request, not running.
bool has_failed(const AttemptSummary& attempt);

}  // namespace trireme::report
