#pragma once
#include <string_view>

/// Named points where a test can make this process fail, so that every window of
/// a protocol is hit on purpose.
///
/// TRIREME_FAULT="point:rank:nth:action[,...]" with TRIREME_ALLOW_FAULTS=1; rank and nth (from
/// 1) may be `*`. Actions: kill9, segv, stop (SIGSTOP), hang (this thread, for ever), exit (code
/// 1), throw (Error(resource)), enospc (as throw), delay (1 s), trigger (failpoint_triggered
/// returns true). Without the variable a point costs one load.
namespace trireme {

/// Throws Error(usage) if TRIREME_FAULT is set but malformed or not allowed.
/// `rank` is this process's.
void failpoints_init(int rank);
void failpoint(std::string_view point);

/// True when `point` is armed for this call with action "trigger":
/// the caller itself does the damage.
bool failpoint_triggered(std::string_view point);

}  // namespace trireme
