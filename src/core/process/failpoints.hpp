#pragma once
#include <string_view>

/// Named points at which a test makes this process fail, to hit every window of a protocol.
namespace trireme {

/// Arms the points of this rank. Throws Error(usage) if TRIREME_FAULT is malformed or not allowed.
void failpoints_init(int rank);
void failpoint(std::string_view point);

/// Returns true if action "trigger" is due at this call; the caller then does the damage itself.
bool failpoint_triggered(std::string_view point);

}  // namespace trireme
