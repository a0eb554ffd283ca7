#pragma once
#include "core/files/json.hpp"

namespace trireme {

/// Prints the members of a JSON object to standard output, one "name: value" per line. With
/// `as_json`, prints the object on one line. Returns the exit code of success.
int print_figures(const Json& figures, bool as_json);

}  // namespace trireme
