#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// The English of the project: reads it from the sources and checks it. Depends on no library.
namespace trireme::language {

enum class TextKind { comment, message, prose };

/// One comment block, one string literal, or one paragraph of Markdown. Wrapped lines keep their
/// line breaks, so that a position in `text` has a line number.
struct Text {
  std::size_t line = 0;  // line number of the first line, from 1
  std::string text;
  TextKind kind = TextKind::comment;
};

/// Returns the comments of a source file; of product code in C++ also the string literals that have
/// at least three words; of a Markdown or HTML file the paragraphs without code and link targets.
/// Returns nothing for other files. `path` is relative to the root and decides the syntax.
std::vector<Text> texts_of(std::string_view path, std::string_view content);

/// Splits `prose` into sentences. A cell of a table and an item of a list end a sentence.
std::vector<std::string> sentences_of(std::string_view prose);

}  // namespace trireme::language
