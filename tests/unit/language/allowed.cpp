#include "unit/language/allowed.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>

namespace trireme::language {
namespace {

using Counts = std::map<std::string, std::size_t>;

constexpr const char* kHeader =
    "# Findings that are not corrected yet: NAME COUNT. Numbers may only shrink; see README.md.\n";

Counts read_counts(const std::filesystem::path& path) {
  Counts counts;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t blank = line.rfind(' ');
    if (line.empty() || line.front() == '#' || blank == std::string::npos) continue;
    counts[line.substr(0, blank)] = std::stoul(line.substr(blank + 1));
  }
  return counts;
}

void write_counts(const std::filesystem::path& path, const Counts& counts) {
  std::ofstream file(path);
  file << kHeader;
  for (const auto& [name, count] : counts)
    if (count > 0) file << name << ' ' << count << '\n';
}

bool is_in(const std::string& name, AllowedScope scope) {
  return name.starts_with("help:") == (scope == AllowedScope::help);
}

}  // namespace

std::string check_allowed(const std::filesystem::path& allowed,
                          const std::vector<Finding>& findings, AllowedScope scope) {
  Counts found;
  for (const Finding& finding : findings) ++found[finding.file];
  Counts counts = read_counts(allowed);

  const char* update = std::getenv("TRIREME_LANGUAGE_UPDATE");
  if (update != nullptr) {
    const bool only_lower = std::string_view(update) != "all";
    for (auto& [name, count] : counts)
      if (is_in(name, scope)) count = std::min(count, found[name]);
    if (!only_lower)
      for (const auto& [name, count] : found) counts[name] = count;
    write_counts(allowed, counts);
  }

  std::string problems;
  for (const auto& [name, count] : counts)
    if (is_in(name, scope)) found.emplace(name, 0);
  for (const auto& [name, count] : found) {
    const std::size_t limit = counts[name];
    if (count == limit) continue;
    problems += name + ": " + std::to_string(count) + " findings, but allowed.txt has " +
                std::to_string(limit) + ".";
    if (count < limit) {
      problems += " Lower the number: run this test with TRIREME_LANGUAGE_UPDATE=lower.\n";
      continue;
    }
    problems += " Correct these texts:\n";
    for (const Finding& finding : findings) {
      if (finding.file != name) continue;
      const std::string line = finding.line > 0 ? std::to_string(finding.line) + ":" : "";
      problems += "  " + name + ":" + line + " " + finding.problem + "\n";
    }
  }
  return problems;
}

}  // namespace trireme::language
