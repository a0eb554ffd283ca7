#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "comm/communicator.hpp"
#include "comm/options.hpp"
#include "comm/session.hpp"

namespace trireme {

/// How a world communicator of one backend is made. `launch` is where this process stands.
struct CommBackend {
  const char* name;
  const char* help;
  std::unique_ptr<Communicator> (*make)(const LaunchInfo& launch, const CommOptions& options);
};

/// The backends every program has: self, mpi (thread is made by ThreadWorld,
/// which owns the threads).
std::span<const CommBackend> cpu_backends();

/// The world communicator of the named backend; "auto" is mpi when the launch has several ranks,
/// else self. `extra`: backends that only some programs link (nccl). Throws Error(usage) listing
/// the known names.
std::unique_ptr<Communicator> make_world(std::string_view name, const LaunchInfo& launch,
                                         const CommOptions& options = {},
                                         std::span<const CommBackend> extra = {});

}  // namespace trireme
