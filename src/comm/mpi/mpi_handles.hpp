#pragma once
#include <mpi.h>

#include <string_view>

#include "core/unique_handle.hpp"

/// Raw MPI handles and error codes appear in src/comm/mpi only.
namespace trireme::comm {

/// Throws Error(comm) with MPI's text unless `code` is MPI_SUCCESS: "MPI_Isend to rank 3: <text>".
void check_mpi(int code, std::string_view what);

inline bool mpi_finalized() noexcept {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized != 0;
}

struct MpiCommTraits {
  using Raw = MPI_Comm;

  static Raw null() noexcept { return MPI_COMM_NULL; }

  static void close(Raw comm) noexcept {  // after MPI_Finalize, freeing is an error
    if (!mpi_finalized()) MPI_Comm_free(&comm);
  }
};

using MpiComm = UniqueHandle<MpiCommTraits>;

}  // namespace trireme::comm
