#pragma once
#include <string>

namespace trireme {

/// A field of a record that was not read although it holds something. Null, blank texts and empty
/// lists hold nothing.
struct UnreadField {
  std::string name;       // "score", or of a message "messages[].name"
  bool has_text = false;  // a text is in its value, at any depth
};

}  // namespace trireme
