#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trireme::layering {

/// Returns the classes, structs and enums that `content` defines for the whole program: in named
/// namespaces, outside of classes and functions, for example "trireme::GradBuckets".
std::vector<std::string> defined_types(std::string_view content);

}  // namespace trireme::layering
