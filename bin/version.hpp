#pragma once
#include <string>

namespace trireme {

/// What --version prints: this program's version and those of what it was built with and runs on.
std::string version_text();

}  // namespace trireme
