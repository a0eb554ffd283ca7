#pragma once
#include <string_view>

namespace trireme {

/// Says how to attach one and returns once a debugger holds this process. `who`: "rank 3 on n2".
/// Other threads go on.
void wait_for_debugger(std::string_view who);

}  // namespace trireme
