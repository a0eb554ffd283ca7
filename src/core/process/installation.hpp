#pragma once
#include <filesystem>
#include <string>

namespace trireme {

/// The directories of the running program: an installed prefix, a checkout, or the frozen copy of a
/// queued job.
struct Installation {
  std::filesystem::path root;  // prefix or checkout
  std::filesystem::path home;  // contains the job scripts: PREFIX/share/trireme, or the checkout
  std::filesystem::path programs;  // contains trireme and trireme-data
  bool is_installed = false;       // `cmake --install` wrote the directory root
};

/// Returns the directories that belong to a program in the directory `programs`.
Installation installation_of(const std::filesystem::path& programs);

/// Returns the directories that belong to the running program.
Installation own_installation();

/// Returns the git commit of the programs, with "-dirty" if files differed from it: from the file
/// `revision` that the build and `cmake --install` write. Returns "unknown" without such a file.
std::string revision_of(const Installation& installation);

}  // namespace trireme
