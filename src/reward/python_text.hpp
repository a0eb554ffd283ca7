#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Functions on text with the results of Python's `str` and `re`, which the rules of MiniMind use.
namespace trireme::reward {

/// Returns the text without white space at both ends, as str.strip().
std::string_view stripped(std::string_view text);

/// Returns the number of characters, as len(). Each byte that is not UTF-8 counts as one.
std::size_t num_characters(std::string_view text);

/// Returns the text in lower case, as str.lower() without its rules for single languages: a final
/// sigma becomes a usual one.
std::string lower(std::string_view text);

/// Returns the matches of \w+|[^\w\s].
std::vector<std::string_view> words_and_signs(std::string_view text);

/// Returns the number of non-overlapping occurrences of `part`, as str.count().
std::size_t count_of(std::string_view text, std::string_view part);

/// Returns the numbers of a text that do not touch a letter, a digit, "_" or ".": 12, -3.5.
std::vector<double> numbers_in(std::string_view text);

}  // namespace trireme::reward
