#pragma once
#include <string>
#include <string_view>

namespace trireme {

/// Appends `text` like Python's json.dumps(text, ensure_ascii=False).
void append_json_text(std::string_view text, std::string& out);

/// Appends `value` like repr(float) and json.dumps of Python: the shortest digits that read back
/// equal, with an exponent below 1e-4 and from 1e16 on. `value` must be finite.
void append_json_number(double value, std::string& out);

}  // namespace trireme
