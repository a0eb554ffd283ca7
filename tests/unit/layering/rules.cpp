#include "unit/layering/rules.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <set>

#include "core/error.hpp"
#include "unit/layering/layers.hpp"

namespace trireme::layering {
namespace {

constexpr std::size_t kMaxLines = 400;
constexpr std::size_t kMaxFiles = 60;  // 30 pairs of .hpp and .cpp

bool starts_with_any(std::string_view text, const Names& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return text.starts_with(prefix); });
}

/// Returns the name inside #include "..." or <...>; "" for any other line.
std::string_view include_name(std::string_view line) {
  const auto skip_blanks = [&] {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  };
  skip_blanks();
  if (!line.starts_with('#')) return "";
  line.remove_prefix(1);
  skip_blanks();
  if (!line.starts_with("include")) return "";
  const std::size_t open = line.find_first_of("\"<");
  const std::size_t close =
      open == std::string_view::npos ? open : line.find_first_of("\">", open + 1);
  return close == std::string_view::npos ? "" : line.substr(open + 1, close - open - 1);
}

/// Returns the module that an include names. Includes of this project are relative to src/ or to
/// the root.
std::string included_module(std::string_view include) {
  const std::string_view first = include.substr(0, include.find('/'));
  return first.size() < include.size() && module_rows().count(first) != 0 ? std::string(first) : "";
}

std::string check_module(const std::string& module, std::string_view include) {
  const std::string other = included_module(include);
  if (other.empty() || other == module) return "";
  const Names& allowed = module_rows().at(module);
  if (std::find(allowed.begin(), allowed.end(), other) != allowed.end()) return "";
  return formatted("{} must not include {} (\"{}\")", module, other, include);
}

/// Returns the directory of a file or an include, relative to src/ or to the root: "text/bpe",
/// "bin".
std::string_view folder_of(std::string_view path) {
  if (path.starts_with("src/")) path.remove_prefix(4);
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? "" : path.substr(0, slash);
}

/// Checks the includes between the subdirectories of one module.
std::string check_room(const std::string& module, std::string_view path, std::string_view include) {
  const std::string_view from = folder_of(path);
  const std::string_view to = folder_of(include);
  if (included_module(include) != module || from == to || from == module) return "";
  const auto row = subdirectory_rows().find(from);
  if (row == subdirectory_rows().end()) return "";  // another problem reports the file already
  const std::string wanted = to == module ? formatted("{}/*", module) : std::string(to);
  const Names& allowed = row->second;
  if (std::find(allowed.begin(), allowed.end(), wanted) != allowed.end()) return "";
  return formatted("{} must not include {} (\"{}\")", from, wanted, include);
}

std::string check_library(const std::string& path, std::string_view include) {
  for (const Library& library : libraries()) {
    if (starts_with_any(include, library.prefixes) && !starts_with_any(path, library.places)) {
      return formatted("<{}> is not for this place", include);
    }
  }
  return "";
}

std::string check_machine_path(std::string_view line) {
  for (const char* folder : {"home", "root", "work", "Users"}) {
    // The prefix is composed, because the test reads this line as well.
    const std::string prefix = formatted("/{}/", folder);
    for (std::size_t at = line.find(prefix); at != std::string_view::npos;
         at = line.find(prefix, at + 1)) {
      const bool within_a_longer_path =
          at > 0 && (std::isalnum(static_cast<unsigned char>(line[at - 1])) != 0 ||
                     line[at - 1] == '.' || line[at - 1] == '}');
      if (!within_a_longer_path) return formatted("a path of one machine: {}", prefix);
    }
  }
  return "";
}

}  // namespace

std::string module_of(std::string_view path) {
  if (path.starts_with("src/")) path.remove_prefix(4);
  const std::size_t slash = path.find('/');
  if (slash == std::string_view::npos || module_rows().count(path.substr(0, slash)) == 0) return "";
  return std::string(path.substr(0, slash));
}

std::vector<std::string> check_file(const std::string& path, std::string_view content) {
  std::vector<std::string> problems;
  const std::string module = module_of(path);
  const std::string_view folder = folder_of(path);
  const bool known = module.empty() ? !path.starts_with("src/") || path.starts_with("src/cmake/")
                                    : folder == module || subdirectory_rows().count(folder) != 0;
  if (!known) {
    problems.push_back(formatted(
        "{}: in no module or room that has a row in tests/unit/layering/layers.cpp", path));
  }
  std::size_t number = 0;
  while (!content.empty()) {
    ++number;
    const std::string_view line = content.substr(0, content.find('\n'));
    content.remove_prefix(std::min(line.size() + 1, content.size()));
    std::vector<std::string> found{check_machine_path(line)};
    const std::string_view include = include_name(line);
    if (!module.empty() && !include.empty()) {
      found.push_back(check_module(module, include));
      found.push_back(check_room(module, path, include));
      found.push_back(check_library(path, include));
    }
    for (const std::string& what : found) {
      if (!what.empty()) problems.push_back(formatted("{}:{}: {}", path, number, what));
    }
  }
  if (number > kMaxLines)
    problems.push_back(formatted("{}: {} lines, at most {}", path, number, kMaxLines));
  return problems;
}

std::vector<std::string> check_headers(const std::vector<std::string>& paths) {
  std::set<std::string> all;
  std::set<std::string> with_header;
  for (const std::string& path : paths) {
    if (!path.starts_with("src/") || module_of(path).empty()) continue;
    all.insert(module_of(path));
    if (path.ends_with(".hpp")) with_header.insert(module_of(path));
  }
  std::vector<std::string> missing;
  std::set_difference(all.begin(), all.end(), with_header.begin(), with_header.end(),
                      std::back_inserter(missing));
  return missing;
}

std::vector<std::string> check_folders(const std::vector<std::string>& paths) {
  std::map<std::string, std::size_t> files;
  std::set<std::string> pages;
  for (const std::string& path : paths) {
    const std::string folder = path.substr(0, path.rfind('/'));
    ++files[folder];
    if (path.ends_with("/README.md")) pages.insert(folder);
  }
  std::vector<std::string> problems;
  for (const auto& [folder, count] : files) {
    if (count > kMaxFiles)
      problems.push_back(formatted("{}: {} files, at most {}", folder, count, kMaxFiles));
    const std::string file = folder + "/x";
    const std::string_view in_module = folder_of(file);
    const bool has_row =
        module_rows().count(in_module) != 0 || subdirectory_rows().count(in_module) != 0;
    if (has_row && pages.count(folder) == 0) problems.push_back(folder + ": has no README.md");
  }
  return problems;
}

}  // namespace trireme::layering
