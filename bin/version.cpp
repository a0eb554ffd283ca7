#include "bin/version.hpp"

#include <nlohmann/json.hpp>

#include "comm/mpi/mpi_library.hpp"
#include "core/files/json_lines.hpp"
#include "core/process/installation.hpp"

namespace trireme {
namespace {

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

}  // namespace

std::string version_json(const std::string& program, const ProgramParts& parts) {
  return json_line({{"program", program},
                    {"version", TRIREME_VERSION},
                    {"commit", revision_of(own_installation())},
                    {"compiler", "g++ " __VERSION__},
                    {"libtorch", text_or_null(parts.libtorch)},
                    {"mpi", text_or_null(comm::mpi_library().version)},
                    {"hdf5", text_or_null(TRIREME_HDF5_VERSION)},
                    {"nccl", text_or_null(parts.nccl)},
                    {"cpu_kernels", parts.cpu_kernels}});
}

}  // namespace trireme
