#pragma once
#include <string_view>

namespace trireme {

/// Logs how to attach a debugger, and returns once one holds this process. `who` is "rank 3 on n2".
/// Other threads keep running.
void wait_for_debugger(std::string_view who);

}  // namespace trireme
