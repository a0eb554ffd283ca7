#pragma once
#include <string>
#include <string_view>

namespace trireme {

/// `prefix` and 24 random letters and digits: "chatcmpl-...". Safe from any thread.
std::string random_id(std::string_view prefix);

}  // namespace trireme
