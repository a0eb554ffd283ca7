#pragma once
#include <string>
#include <string_view>

namespace trireme {

/// A part of a path with %20 and the like as the bytes they stand for; what is no such form stays.
/// Source: RFC 3986, section 2.1.
std::string percent_decoded(std::string_view text);

}  // namespace trireme
