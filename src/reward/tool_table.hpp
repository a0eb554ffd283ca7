#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/json.hpp"

namespace trireme::reward {

/// Answers the calls of tools that a model writes.
///
/// A table is a JSON list of tools, each an object with
///   "name", "description", "parameters"   the declaration, as in chats
///   "kind"        "expression": computes the argument "expression" (evaluate_expression)
///                 "lookup": finds the argument that "argument" names in the object "values";
///                 "default" (optional) is the result for all other values
///                 "units": argument "value" times the entry "FROM_TO" of the object "factors",
///                 with the arguments "from_unit" and "to_unit" in small letters
/// The text of a model is data and never code. A wrong call has the result {"error": "..."}.
class ToolTable {
 public:
  /// Reads a table. Throws Error(data) that names the tool and its mistake.
  static ToolTable load(const std::filesystem::path& path);
  static ToolTable parse(std::string_view text, std::string_view where);

  /// Returns the declarations for a chat template: [{"type": "function", "function": {...}}].
  [[nodiscard]] Json declarations() const;

  /// Returns the result of a call {"name", "arguments"} as JSON text of at most 2,048 bytes.
  [[nodiscard]] std::string answer(const Json& call) const;

 private:
  std::vector<Json> tools_;
};

}  // namespace trireme::reward
