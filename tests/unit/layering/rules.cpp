#include "unit/layering/rules.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <set>

#include "core/error.hpp"

namespace trireme::layering {
namespace {

using Names = std::vector<std::string_view>;

constexpr std::size_t kMaxLines = 400;

/// What each module may include besides itself. The one copy of the layer picture
/// that a program reads.
const std::map<std::string_view, Names>& allowed_modules() {
  static const std::map<std::string_view, Names> table{
      {"core", {}},
      {"config", {"core"}},
      {"comm", {"core"}},
      {"parallel", {"core", "comm"}},
      {"text", {"core", "comm", "parallel"}},
      {"data", {"core", "comm", "parallel"}},
      {"optim", {"core", "comm", "parallel"}},
      {"ops", {"core"}},
      {"objective", {"core", "comm", "parallel", "ops"}},
      {"model", {"core", "comm", "parallel", "text", "data", "optim", "ops", "objective"}},
      {"checkpoint",
       {"core", "config", "comm", "parallel", "text", "data", "optim", "objective", "model"}},
      {"data_prep",
       {"core", "config", "comm", "text", "data"}},  // trireme-data runs without LibTorch
      {"train",
       {"core", "config", "comm", "parallel", "text", "data", "optim", "ops", "objective", "model",
        "checkpoint"}},
      {"serve",
       {"core", "config", "comm", "parallel", "text", "data", "optim", "ops", "objective", "model",
        "checkpoint"}},
      {"bin",
       {"core", "config", "comm", "parallel", "text", "data", "optim", "ops", "objective", "model",
        "checkpoint", "data_prep", "train", "serve"}}};
  return table;
}

/// A library header and the places (folders end in '/') that may include it.
struct Library {
  Names prefixes;
  Names places;
};

const std::vector<Library>& libraries() {
  static const std::vector<Library> table{
      {{"torch/", "ATen/", "c10/", "caffe2/"},
       {"src/parallel/", "src/model/", "src/ops/", "src/objective/", "src/optim/", "src/train/",
        "src/serve/", "checkpoint/"}},
      {{"spdlog/", "fmt/"}, {"src/core/log.cpp"}},
      {{"CLI/"}, {"src/config/command_parser.cpp"}},
      {{"toml++/", "toml.hpp"}, {"src/config/toml_file.cpp"}},
      {{"hdf5.h", "hdf5/", "H5"}, {"src/core/files/hdf5.cpp"}},
      {{"mpi.h"}, {"src/comm/"}},
      {{"nccl.h"}, {"src/comm/nccl/"}}};
  return table;
}

bool starts_with_any(std::string_view text, const Names& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return text.starts_with(prefix); });
}

/// The name inside #include "..." or <...>; "" for any other line.
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

/// The module that an include names: ours are written from src/ or from the root.
std::string included_module(std::string_view include) {
  const std::string_view first = include.substr(0, include.find('/'));
  return first.size() < include.size() && allowed_modules().count(first) != 0 ? std::string(first)
                                                                              : "";
}

std::string check_module(const std::string& module, std::string_view include) {
  const std::string other = included_module(include);
  if (other.empty() || other == module) return "";
  const Names& allowed = allowed_modules().at(module);
  if (std::find(allowed.begin(), allowed.end(), other) != allowed.end()) return "";
  return cat(module, " must not include ", other, " (\"", include, "\")");
}

std::string check_library(const std::string& path, std::string_view include) {
  for (const Library& library : libraries()) {
    if (starts_with_any(include, library.prefixes) && !starts_with_any(path, library.places)) {
      return cat("<", include, "> is not for this place");
    }
  }
  return "";
}

std::string check_machine_path(std::string_view line) {
  for (const char* folder : {"home", "root", "work", "Users"}) {
    const std::string prefix = cat("/", folder, "/");  // put together: this line is read too
    for (std::size_t at = line.find(prefix); at != std::string_view::npos;
         at = line.find(prefix, at + 1)) {
      const bool within_a_longer_path =
          at > 0 && (std::isalnum(static_cast<unsigned char>(line[at - 1])) != 0 ||
                     line[at - 1] == '.' || line[at - 1] == '}');
      if (!within_a_longer_path) return cat("a path of one machine: ", prefix);
    }
  }
  return "";
}

}  // namespace

std::string module_of(std::string_view path) {
  if (path.starts_with("src/")) path.remove_prefix(4);
  const std::size_t slash = path.find('/');
  if (slash == std::string_view::npos || allowed_modules().count(path.substr(0, slash)) == 0)
    return "";
  return std::string(path.substr(0, slash));
}

std::vector<std::string> check_file(const std::string& path, std::string_view content) {
  std::vector<std::string> problems;
  const std::string module = module_of(path);
  if (module.empty() && path.starts_with("src/") && !path.starts_with("src/cmake/")) {
    problems.push_back(
        cat(path, ": in no module that the layers know; add it to tests/unit/layering/rules.cpp"));
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
      found.push_back(check_library(path, include));
    }
    for (const std::string& what : found) {
      if (!what.empty()) problems.push_back(cat(path, ":", number, ": ", what));
    }
  }
  if (number > kMaxLines)
    problems.push_back(cat(path, ": ", number, " lines, at most ", kMaxLines));
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

}  // namespace trireme::layering
