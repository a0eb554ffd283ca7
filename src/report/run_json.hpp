#pragma once
#include <string>
#include <vector>

#include "core/files/json.hpp"
#include "report/run_report.hpp"

namespace trireme::report {

/// Returns {"runs": [...]} as documented in docs/monitoring.md; unknown values are null.
Json to_json(const std::vector<RunReport>& runs);

/// Returns the value of a JSON text; null if it is empty or damaged. `name`: the file of the text.
Json parsed_or_null(const std::string& text, const char* name);

}  // namespace trireme::report
