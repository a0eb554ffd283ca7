#pragma once

namespace trireme {

/// The largest number of threads that a setting may request: train.threads, --threads of both
/// programs.
inline constexpr int kMaxThreads = 1024;

}  // namespace trireme
