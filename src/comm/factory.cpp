#include "comm/factory.hpp"

#include <array>
#include <thread>

#include "comm/mpi/mpi_communicator.hpp"
#include "comm/self/self_communicator.hpp"
#include "core/error.hpp"

namespace trireme::comm {
namespace {

std::unique_ptr<Communicator> make_self(const LaunchInfo& launch, const CommOptions& options) {
  if (launch.size != 1) {
    fail(ErrorKind::usage, "comm backend 'self' is for one rank, this launch has {}; use 'mpi'",
         launch.size);
  }
  return std::make_unique<SelfCommunicator>("world", options);
}

std::unique_ptr<Communicator> make_mpi(const LaunchInfo& launch, const CommOptions& options) {
  CommOptions known = options;
  known.node = launch.node;
  known.shares_cores =
      static_cast<unsigned>(launch.local_size) > std::thread::hardware_concurrency();
  return make_mpi_world(known);
}

constexpr std::array<CommBackend, 2> kBackends{
    {{"self", "one process, no communication", make_self}, {"mpi", "MPI, host memory", make_mpi}}};

}  // namespace

std::span<const CommBackend> cpu_backends() {
  return kBackends;
}

std::unique_ptr<Communicator> make_world(std::string_view name, const LaunchInfo& launch,
                                         const CommOptions& options,
                                         std::span<const CommBackend> extra) {
  if (name == "auto") name = launch.size > 1 ? "mpi" : "self";
  std::string known = "auto";
  for (const auto& table : {cpu_backends(), extra}) {
    for (const auto& backend : table) {
      if (name == backend.name) return backend.make(launch, options);
      known += formatted(", {}", backend.name);
    }
  }
  fail(ErrorKind::usage, "comm backend '{}', must be one of {}", name, known);
}

}  // namespace trireme::comm
