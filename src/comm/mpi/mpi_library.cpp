#include "comm/mpi/mpi_library.hpp"

#include <dlfcn.h>
#include <mpi.h>

#include <array>
#include <string_view>

namespace trireme::comm {

MpiLibrary mpi_library() {
  MpiLibrary library;
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) == MPI_SUCCESS) {
    // Open MPI: "Open MPI v4.1.4, package: ..."; other libraries may add lines.
    const std::string_view whole(text.data(), static_cast<std::size_t>(length));
    library.version = whole.substr(0, whole.find_first_of(",\n"));
  }
  Dl_info info{};
  // The address in the program itself may be that of a jump table.
  void* const function = ::dlsym(RTLD_DEFAULT, "MPI_Init");
  if (function != nullptr && ::dladdr(function, &info) != 0 && info.dli_fname != nullptr)
    library.file = info.dli_fname;
  return library;
}

}  // namespace trireme::comm
