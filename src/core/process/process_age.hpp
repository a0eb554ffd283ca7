#pragma once

namespace trireme {

/// Returns the seconds since this process started to load; 0 if unknown.
double process_age_s();

}  // namespace trireme
