#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

/// Compiled kernels on disk. A file is written under a temporary name and renamed, so that ranks and
/// nodes may share a directory. A damaged file is replaced.
namespace trireme::ops::cuda {

/// Returns the directories of the cache, in order of preference:
///   1. $TRIREME_KERNEL_CACHE, else $XDG_CACHE_HOME/trireme/kernels, else ~/.cache/trireme/kernels
///   2. trireme-kernels-<user id> in the directory for temporary files
std::vector<std::filesystem::path> cache_directories();

/// Returns the content of the first valid file `name` in `directories`. If there is none, calls
/// `make` and writes its result to the first directory that can be written. Logs a warning once per
/// process if the preferred directory cannot be written. Rethrows errors of `make`.
std::string read_or_make(const std::vector<std::filesystem::path>& directories,
                         const std::string& name, const std::function<std::string()>& make);

}  // namespace trireme::ops::cuda
