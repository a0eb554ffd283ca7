#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "comm/communicator.hpp"
#include "comm/options.hpp"
#include "comm/session.hpp"

namespace trireme::comm {

/// Creates the world communicator of one backend; `launch` describes this process.
struct CommBackend {
  const char* name;
  const char* help;
  std::unique_ptr<Communicator> (*make)(const LaunchInfo& launch, const CommOptions& options);
};

/// Returns the backends of every program: self and mpi. ThreadWorld creates thread communicators,
/// because it owns the threads.
std::span<const CommBackend> cpu_backends();

/// Creates the world communicator of the named backend; "auto" is mpi for several ranks, otherwise
/// self. `extra` lists backends of some programs (nccl). Throws Error(usage) with the known names.
std::unique_ptr<Communicator> make_world(std::string_view name, const LaunchInfo& launch,
                                         const CommOptions& options = {},
                                         std::span<const CommBackend> extra = {});

}  // namespace trireme::comm
