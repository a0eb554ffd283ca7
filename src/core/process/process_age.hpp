#pragma once

namespace trireme {

/// Returns the seconds since this process started, including the loading of its libraries; 0 if
/// unknown.
double process_age_s();

}  // namespace trireme
