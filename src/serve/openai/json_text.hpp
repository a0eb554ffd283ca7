#pragma once
#include <string>

#include "core/files/json.hpp"

namespace trireme {

/// One line of JSON, characters as they are; bytes that are no UTF-8 become U+FFFD.
std::string json_text(const Json& value);

}  // namespace trireme
