#include "data_prep/input/input_paths.hpp"

#include <glob.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <string_view>

#include "core/error.hpp"
#include "core/files/refusal.hpp"

namespace trireme {
namespace {

constexpr std::array<std::string_view, 3> kSuffixes{".jsonl", ".jsonl.gz", ".jsonl.zst"};

std::vector<std::string> files_of_folder(const std::string& folder) {
  std::vector<std::string> files;
  try {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      const bool wanted = std::any_of(kSuffixes.begin(), kSuffixes.end(),
                                      [&](auto suffix) { return name.ends_with(suffix); });
      if (wanted && entry.is_regular_file()) files.push_back(entry.path().string());
    }
  } catch (const std::filesystem::filesystem_error& error) {
    fail_to_read("list --input", folder, error.code().value());
  }
  if (files.empty())
    fail(ErrorKind::data, "--input {}: no .jsonl, .jsonl.gz or .jsonl.zst in this folder", folder);
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> files_of_pattern(const std::string& pattern) {
  glob_t found{};
  errno = 0;
  const int code = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  const int aborted_by = errno;
  std::vector<std::string> files;
  if (code == 0) files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (code == GLOB_NOSPACE) fail(ErrorKind::resource, "--input {}: out of memory", pattern);
  if (code == GLOB_ABORTED) fail_to_read("list a folder of --input", pattern, aborted_by);
  if (files.empty()) fail(ErrorKind::data, "--input {}: no file matches this pattern", pattern);
  std::sort(files.begin(), files.end());  // bytewise: glob sorts by the locale
  return files;
}

std::vector<std::string> files_of(const std::string& argument) {
  std::error_code ignored;
  if (std::filesystem::is_directory(argument, ignored)) return files_of_folder(argument);
  const bool pattern = argument.find_first_of("*?[") != std::string::npos;
  if (pattern && !std::filesystem::exists(argument, ignored)) return files_of_pattern(argument);
  return {argument};
}

}  // namespace

std::vector<std::filesystem::path> expand_inputs(const std::vector<std::string>& arguments) {
  std::vector<std::filesystem::path> paths;
  std::set<std::filesystem::path> seen;
  for (const std::string& argument : arguments) {
    for (const std::string& file : files_of(argument)) {
      std::error_code code;
      paths.push_back(std::filesystem::canonical(file, code));
      if (code) fail_to_read("open --input", file, code.value());
      if (!std::filesystem::is_regular_file(paths.back(), code))
        fail(ErrorKind::data, "--input {} is no file; give files, folders or patterns", file);
      if (!seen.insert(paths.back()).second)
        fail(ErrorKind::usage, "--input {} is given twice", file);
    }
  }
  if (paths.empty()) fail(ErrorKind::usage, "--input names no file");
  return paths;
}

std::filesystem::path common_folder(const std::vector<std::filesystem::path>& paths) {
  std::filesystem::path common = paths.front().parent_path();
  for (const std::filesystem::path& path : paths) {
    const std::filesystem::path folder = path.parent_path();
    const auto mine =
        std::mismatch(common.begin(), common.end(), folder.begin(), folder.end()).first;
    std::filesystem::path shared;
    for (auto part = common.begin(); part != mine; ++part) shared /= *part;
    common = shared;
  }
  return common;
}

}  // namespace trireme
