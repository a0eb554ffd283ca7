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

/// Returns the backends that every program has: self and mpi. The backend thread is not among them:
/// only ThreadWorld creates its communicators, because it owns the threads.
std::span<const CommBackend> cpu_backends();

/// Creates the world communicator of the named backend. "auto" selects mpi for several ranks and
/// self for one. `extra` lists backends that only some programs have (nccl). If the name is
/// unknown, throws Error(usage) that lists the known names.
std::unique_ptr<Communicator> make_world(std::string_view name, const LaunchInfo& launch,
                                         const CommOptions& options = {},
                                         std::span<const CommBackend> extra = {});

}  // namespace trireme::comm
