#include <cstdlib>

#include "comm/launchers.hpp"
#include "comm/mpi/mpi_communicator.hpp"
#include "comm/mpi/mpi_library.hpp"
#include "comm/session.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

/// Builds without MPI: a session is one process.
namespace trireme::comm {

std::unique_ptr<Communicator> make_mpi_world(const CommOptions&) {
  fail(
      ErrorKind::usage,
      "comm backend 'mpi' is not in this build (TRIREME_WITH_MPI=OFF); use 'self', or build with MPI");
}

MpiLibrary mpi_library() {
  return {};
}

Session::Session(int*, char***) {
  launch_.hostname = this_hostname();
  check_launcher(launcher_variables(), 1);
}

Session::~Session() = default;

void abort_job(int exit_code) noexcept {
  log::flush();
  std::_Exit(exit_code);
}

}  // namespace trireme::comm
