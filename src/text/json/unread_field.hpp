#pragma once
#include <string>

namespace trireme::text {

/// A field of a record that was not read although it is not empty. Null, blank strings and empty
/// lists are empty.
struct UnreadField {
  std::string name;       // "score", or "messages[].name" for a field of a message
  bool has_text = false;  // the value contains a non-blank string, at any depth
};

}  // namespace trireme::text
