#pragma once
#include <string>
#include <string_view>

namespace trireme {

/// Appends `text` as Python's json.dumps(text, ensure_ascii=False) writes it.
void append_json_text(std::string_view text, std::string& out);

/// Appends `value` as Python's repr(float) and so json.dumps write it: the shortest digits that
/// read back equal, an exponent below 1e-4 and from 1e16 on. `value` must be finite.
void append_json_number(double value, std::string& out);

}  // namespace trireme
