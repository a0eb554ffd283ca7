#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace trireme {

/// The files that --input names, absolute: files as given, folders and patterns expanded (see
/// inspect_inputs). Throws as that.
std::vector<std::filesystem::path> expand_inputs(const std::vector<std::string>& arguments);

/// The deepest folder that all paths lie in.
std::filesystem::path common_folder(const std::vector<std::filesystem::path>& paths);

}  // namespace trireme
