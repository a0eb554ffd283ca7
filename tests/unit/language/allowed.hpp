#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "unit/language/rules.hpp"

namespace trireme::language {

enum class AllowedScope { files, help };

/// Compares the number of findings in each file with allowed.txt, which has one `NAME COUNT` per
/// line. A NAME that begins with "help:" belongs to the scope `help`; all others are paths. Returns
/// one line per problem; empty if all numbers are equal. If TRIREME_LANGUAGE_UPDATE is set, first
/// rewrites the entries of `scope`: `lower` only lowers numbers, `all` sets all of them.
std::string check_allowed(const std::filesystem::path& allowed,
                          const std::vector<Finding>& findings, AllowedScope scope);

}  // namespace trireme::language
