#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// `text` with control characters but line feed and tab as "\x1b", so that no data can steer a
/// terminal. UTF-8; U+0080 to U+009F are control characters as well.
std::string escape_controls(std::string_view text);

/// The same of JSON, with "\u001b": it stays JSON of the same values.
std::string escape_json_controls(std::string_view json);

/// In single quotes where a shell would read it as something else.
std::string shell_word(const std::string& word);

/// A command as a shell reads it back.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace trireme
