#pragma once
#include <string>
#include <string_view>
#include <vector>

/// The layers of the project as rules over file names and include lines, so that tests can use
/// made-up files.
namespace trireme::layering {

/// Returns the module of a file: "optim" for "src/optim/adamw.cpp", "data_prep" for
/// "data_prep/pack/pack.cpp", "bin" for "bin/trireme.cpp"; "" for a file outside of the modules.
std::string module_of(std::string_view path);

/// Returns all problems of one file, one line each, "path:line: problem". `path` is relative to the
/// root, with slashes. Rules: modules include only lower modules, never siblings; the same holds
/// for the subdirectories of a module; a library header appears only where it is allowed; a file
/// has at most 400 lines; no line has a path of one machine.
std::vector<std::string> check_file(const std::string& path, std::string_view content);

/// Returns the modules of `paths` below src/ that have no header of their own.
std::vector<std::string> check_headers(const std::vector<std::string>& paths);

/// Returns the directories with more than 60 of `paths` (all files of the project), and the modules
/// and subdirectories without a README.md.
std::vector<std::string> check_folders(const std::vector<std::string>& paths);

}  // namespace trireme::layering
