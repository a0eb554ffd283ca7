#pragma once
#include <map>
#include <string_view>
#include <vector>

/// The layer picture that a program reads: who may include whom. The only copy of it.
namespace trireme::layering {

using Names = std::vector<std::string_view>;

/// What each module may include besides itself, all rooms of it.
const std::map<std::string_view, Names>& module_rows();

/// What each room (a folder inside a module) may include of its own module besides itself;
/// "text/*" is what lies directly in `text`. Files directly in a module may include all its rooms.
const std::map<std::string_view, Names>& room_rows();

/// A library header and the places (folders end in '/') that may include it.
struct Library {
  Names prefixes;
  Names places;
};

const std::vector<Library>& libraries();

}  // namespace trireme::layering
