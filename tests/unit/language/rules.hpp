#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "unit/language/texts.hpp"

namespace trireme::language {

/// One offence against the rules of language.
struct Finding {
  std::string file;  // an entry of allowed.txt
  std::size_t line = 0;
  std::string problem;
};

/// Returns the bare word ("of", "what", "whether", "how", "as", "in", "the same") that opens
/// `text`; empty if none does. "As in torch" and "In backward, X does Y" are whole sentences.
std::string bare_opening(std::string_view text);

/// Returns the private words in `text`, each with the number of its line in `text` (from 0).
/// Text in backquotes, single words in quotes, paths, options and identifiers with an underscore
/// are free.
struct PrivateWord {
  std::string word;
  std::size_t line = 0;
};

std::vector<PrivateWord> private_words(std::string_view text);

/// Returns all findings in one file.
std::vector<Finding> check_file(const std::string& path, std::string_view content);

/// Returns the findings in a page of `PROGRAM help COMMAND` or `PROGRAM COMMAND --help-all`: an
/// option or a command that has a description which opens with a bare word, private words outside
/// the examples, and lines over 100 columns (a line with one word over 60 columns cannot be
/// wrapped).
std::vector<std::string> check_help(std::string_view page);

/// Returns the number of sentences over 30 words in the prose of one file.
std::size_t long_sentences(std::string_view path, std::string_view content);

}  // namespace trireme::language
