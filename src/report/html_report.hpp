#pragma once
#include <string>
#include <vector>

#include "report/run_report.hpp"

namespace trireme::report {

/// Returns one HTML file that shows the runs and loads nothing else. The size grows with the number
/// of lines of metrics: 16 bytes of series for each. `now_s` is the Unix time of the report.
std::string html_report(const std::vector<RunReport>& runs, double now_s);

}  // namespace trireme::report
