#pragma once

namespace trireme {

/// Most threads of a process that a setting may ask for: train.threads, --threads of both programs.
inline constexpr int kMaxThreads = 1024;

}  // namespace trireme
