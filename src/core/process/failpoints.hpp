#pragma once
#include <string_view>

/// Named points at which a test makes this process fail, to hit every window of a protocol.
///
/// TRIREME_FAULT="point:rank:nth:action[,...]" with TRIREME_ALLOW_FAULTS=1 arms points; rank and
/// nth (from 1) may be `*`. Actions: kill9, segv, stop (SIGSTOP), hang (this thread, forever), exit
/// (code 1), throw (Error(resource)), enospc (like throw), delay (1 s), trigger
/// (failpoint_triggered() returns true). Without the variable a point costs one load.
namespace trireme {

/// Arms the points of this rank. Throws Error(usage) if TRIREME_FAULT is malformed or not allowed.
void failpoints_init(int rank);
void failpoint(std::string_view point);

/// Returns true if action "trigger" is due at this call; the caller then does the damage itself.
bool failpoint_triggered(std::string_view point);

}  // namespace trireme
