#pragma once

namespace trireme {

/// Seconds since this process began, loading of its libraries included; 0 where the kernel does not
/// tell.
double process_age_s();

}  // namespace trireme
