#pragma once
#include <string>
#include <string_view>
#include <vector>

/// The layers of the project as rules over file names and include lines, so that they can be tried
/// on made-up files.
namespace trireme::layering {

/// "src/optim/adamw.cpp" is of module "optim", "data_prep/pack/pack.cpp" of "data_prep",
/// "bin/trireme.cpp" of "bin"; "" for what is in no module.
std::string module_of(std::string_view path);

/// Everything wrong with one file, one line each, "path:line: what". `path` is relative to the
/// root, with slashes. Rules: modules include only those below them, siblings never; rooms of a
/// module likewise; a library header appears only where it is allowed; at most 400 lines; no path
/// of one machine.
std::vector<std::string> check_file(const std::string& path, std::string_view content);

/// Modules of `paths` below src/ that have no header of their own.
std::vector<std::string> check_headers(const std::vector<std::string>& paths);

/// Folders with more than 30 of `paths` (all files of the project), and modules and rooms without a
/// README.md.
std::vector<std::string> check_folders(const std::vector<std::string>& paths);

}  // namespace trireme::layering
