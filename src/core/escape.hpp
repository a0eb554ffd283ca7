#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Replaces control characters of UTF-8 text except line feed and tab by "\x1b", so that no data
/// can control a terminal. U+0080 to U+009F are control characters as well.
std::string escape_controls(std::string_view text);

/// Like escape_controls(), but writes "\u001b", so that the JSON keeps its values.
std::string escape_json_controls(std::string_view json);

/// Returns the word in single quotes if a shell would otherwise change it.
std::string shell_word(const std::string& word);

/// Returns the words as one command line for a shell.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace trireme
