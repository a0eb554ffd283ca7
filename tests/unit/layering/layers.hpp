#pragma once
#include <map>
#include <string_view>
#include <vector>

/// The module layers as tables: which module may include which. This is the only copy.
namespace trireme::layering {

using Names = std::vector<std::string_view>;

/// Returns the modules that each module may include in addition to itself, with all their
/// subdirectories.
const std::map<std::string_view, Names>& module_rows();

/// Returns the parts of its own module that each subdirectory may include in addition to itself;
/// "text/*" means the files directly in `text`. Files directly in a module may include all of its
/// subdirectories.
const std::map<std::string_view, Names>& subdirectory_rows();

/// A library header and the places (directories end in '/') that may include it.
struct Library {
  Names prefixes;
  Names places;
};

const std::vector<Library>& libraries();

}  // namespace trireme::layering
