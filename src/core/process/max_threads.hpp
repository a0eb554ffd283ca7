#pragma once

namespace trireme {

/// The limit of settings for threads: train.threads, --threads of both programs.
inline constexpr int kMaxThreads = 1024;

}  // namespace trireme
