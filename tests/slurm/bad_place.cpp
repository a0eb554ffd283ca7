// Simulates a faulty machine by LD_PRELOAD, for problems that a healthy machine does not have. Each
// part is inactive until its variable is set.
//   BAD_PLACE_AHEAD_S    the wall clock is ahead by so many seconds (negative: behind)
//   BAD_PLACE_DAMAGES    one bit of each large message that is sent is flipped
//   BAD_PLACE_DRIVER     the NVIDIA driver supports this CUDA version, 12020 for 12.2
#include <mpi.h>

#include <cstdlib>

#include "support/wall_clock.hpp"

namespace {

constexpr int kLarge_bytes = 100'000;  // gathered facts are smaller, what is summed is larger

int number_in(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

__attribute__((constructor)) void set_clock() {
  trireme::test::set_wall_clock(number_in("BAD_PLACE_AHEAD_S"));
}

}  // namespace

extern "C" {

int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request) {
  if (type == MPI_BYTE && count > kLarge_bytes && number_in("BAD_PLACE_DAMAGES") != 0) {
    auto* bytes = static_cast<unsigned char*>(const_cast<void*>(data));
    bytes[count / 8 * 4 + 2] ^= 0x10U;  // a bit in the fraction of a float
  }
  return PMPI_Isend(data, count, type, peer, tag, comm, request);
}

int cudaDriverGetVersion(int* version) {
  *version = number_in("BAD_PLACE_DRIVER");
  return 0;
}

}  // extern "C"
