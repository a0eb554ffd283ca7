#include "unit/language/texts.hpp"

#include <algorithm>
#include <cctype>

namespace trireme::language {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

/// Removes the first line from `text` and returns it without its line break.
std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

bool ends_with_any(std::string_view path, const std::vector<std::string_view>& ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return path.ends_with(end); });
}

bool is_letter_or_digit(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// Collects the comment lines of one file. A comment line continues the comment of the line before
/// if both stand alone on their lines, or if it is aligned with a comment behind code.
class Comments {
 public:
  /// `column` is the position in its line, and `stands_alone` is true if no code precedes.
  void add(std::size_t line, std::size_t column, std::string_view comment, bool stands_alone) {
    comment.remove_prefix(std::min(comment.find_first_not_of("/!<#* \t"), comment.size()));
    const bool is_aligned = last_stands_alone_ || column == last_column_;
    const bool continues = stands_alone && is_aligned && last_line_ + 1 == line;
    if (continues && !texts_.empty()) {
      texts_.back().text += '\n';
      texts_.back().text += trimmed(comment);
    } else {
      texts_.push_back({line, std::string(trimmed(comment))});
    }
    if (!continues) last_stands_alone_ = stands_alone;
    last_line_ = line;
    last_column_ = column;
  }

  std::vector<Text> take() { return std::move(texts_); }

 private:
  std::vector<Text> texts_;
  std::size_t last_line_ = 0;
  std::size_t last_column_ = 0;
  bool last_stands_alone_ = false;
};

/// Reads C++ one character after another.
class CppReader {
 public:
  CppReader(std::string_view content, bool reads_messages)
      : rest_(content), reads_messages_(reads_messages) {}

  std::vector<Text> read() {
    while (!rest_.empty()) step();
    std::vector<Text> texts = comments_.take();
    texts.insert(texts.end(), messages_.begin(), messages_.end());
    return texts;
  }

 private:
  void step() {
    const char c = rest_.front();
    if (rest_.starts_with("//")) {
      const bool stands_alone = !has_code_;
      const std::size_t column = column_;
      comments_.add(line_, column, take(rest_.find('\n')), stands_alone);
    } else if (rest_.starts_with("/*")) {
      block_comment();
    } else if (rest_.starts_with("R\"") && !after_word_) {
      const std::size_t open = rest_.find('(');
      std::string end = ")";
      end += rest_.substr(2, open - 2);
      end += '"';
      add_message(take(past(rest_.find(end, open), end.size())).substr(open + 1));
    } else if (c == '"' || (c == '\'' && !after_word_)) {
      std::size_t at = 1;
      while (at < rest_.size() && rest_[at] != c) at += rest_[at] == '\\' ? 2 : 1;
      const std::string_view literal = take(past(at, 1));
      if (c == '"') add_message(literal.substr(1));
    } else {
      take(1);
    }
  }

  void block_comment() {
    const bool stands_alone = !has_code_;
    std::size_t line = line_;
    const std::size_t column = column_;
    std::string_view comment = take(past(rest_.find("*/"), 2));
    if (comment.ends_with("*/")) comment.remove_suffix(2);
    while (!comment.empty()) comments_.add(line++, column, take_line(comment), stands_alone);
  }

  void add_message(std::string_view literal) {
    if (reads_messages_ && std::ranges::count(literal, ' ') >= 2)
      messages_.push_back({message_line_, std::string(literal), TextKind::message});
  }

  static std::size_t past(std::size_t at, std::size_t size) {
    return at == std::string_view::npos ? at : at + size;
  }

  std::string_view take(std::size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    message_line_ = line_;
    for (const char c : taken) {
      ++column_;
      if (c == '\n') {
        ++line_;
        column_ = 0;
        has_code_ = false;
      } else if (kBlanks.find(c) == std::string_view::npos) {
        has_code_ = true;
      }
    }
    after_word_ = is_letter_or_digit(taken.back());  // 1'000 has no character literal
    return taken;
  }

  std::string_view rest_;
  bool reads_messages_;
  Comments comments_;
  std::vector<Text> messages_;
  std::size_t line_ = 1;
  std::size_t column_ = 0;
  std::size_t message_line_ = 1;
  bool has_code_ = false;  // on the current line
  bool after_word_ = false;
};

/// Returns the position of a comment that begins with `mark` outside quotes; npos if there is none.
std::size_t comment_begin(std::string_view line, std::string_view mark) {
  for (std::size_t at = line.find(mark); at != std::string_view::npos;
       at = line.find(mark, at + 1)) {
    const std::string_view before = line.substr(0, at);
    const std::string_view after = line.substr(at + mark.size());
    const bool is_apart = before.empty() || kBlanks.find(before.back()) != std::string_view::npos;
    const bool has_text = after.starts_with(' ');
    if (is_apart && has_text && std::ranges::count(before, '"') % 2 == 0 &&
        std::ranges::count(before, '\'') % 2 == 0)
      return at;
  }
  return std::string_view::npos;
}

/// Reads a script line by line: comments that begin with `mark`, docstrings of Python, and
/// comments of CSS and JavaScript that begin with /* at the start of a line.
std::vector<Text> script_texts(std::string_view content, std::string_view mark) {
  Comments comments;
  bool in_string = false;
  bool in_comment = false;  // a docstring or a /* comment
  for (std::size_t number = 1; !content.empty(); ++number) {
    const std::string_view line = take_line(content);
    std::string_view text = trimmed(line);
    std::size_t quotes = 0;
    for (std::size_t at = line.find("\"\"\""); at != std::string_view::npos;
         at = line.find("\"\"\"", at + 3))
      ++quotes;
    const bool begins = !in_string && !in_comment &&
                        (text.starts_with("\"\"\"") || (mark == "//" && text.starts_with("/*")));
    if (begins || in_comment) {
      const bool is_docstring = quotes > 0 || in_string;
      const bool one_line = begins && (quotes == 2 || text.ends_with("*/"));
      in_comment = one_line ? false : begins || !(quotes == 1 || text.ends_with("*/"));
      in_string = in_comment && is_docstring;
      if (text.starts_with("\"\"\"")) text.remove_prefix(3);
      if (const std::size_t end = text.find("\"\"\""); end != std::string_view::npos)
        text = text.substr(0, end);
      comments.add(number, 0, text, !begins);
      continue;
    }
    if (quotes % 2 == 1) in_string = !in_string;
    if (in_string) continue;
    const std::size_t at = comment_begin(line, mark);
    if (at != std::string_view::npos)
      comments.add(number, at, line.substr(at), trimmed(line.substr(0, at)).empty());
  }
  return comments.take();
}

/// Removes everything from `open` to `close` from each line of `text`.
void remove_between(std::string& text, std::string_view open, std::string_view close) {
  for (std::size_t begin = text.find(open); begin != std::string::npos;
       begin = text.find(open, begin)) {
    const std::size_t end = text.find(close, begin + open.size());
    if (end == std::string::npos) return;
    text.erase(begin, end + close.size() - begin);
  }
}

std::vector<Text> prose_texts(std::string_view content, bool is_html) {
  std::vector<Text> texts;
  bool in_code = false;
  bool in_paragraph = false;
  for (std::size_t number = 1; !content.empty(); ++number) {
    std::string line(take_line(content));
    const std::string_view text = trimmed(line);
    if (text.starts_with("```")) in_code = !in_code;
    const bool is_prose = !in_code && !text.empty() && !text.starts_with("```");
    const bool starts_anew = text.starts_with("|") || text.starts_with("- ") ||
                             text.starts_with("#") ||
                             std::isdigit(static_cast<unsigned char>(text.front())) != 0;
    if (!is_prose) {
      in_paragraph = false;
      continue;
    }
    if (is_html) {
      remove_between(line, "<", ">");
    } else {
      remove_between(line, "](", ")");
      remove_between(line, "<!--", "-->");
    }
    if (in_paragraph && !starts_anew) {
      texts.back().text += '\n' + line;
    } else {
      texts.push_back({number, line, TextKind::prose});
    }
    in_paragraph = true;
  }
  return texts;
}

}  // namespace

std::vector<Text> texts_of(std::string_view path, std::string_view content) {
  if (ends_with_any(path, {".cpp", ".hpp", ".cu", ".cuh", ".h"}))
    return CppReader(content, !path.starts_with("tests/")).read();
  if (ends_with_any(path, {".md", ".html"})) return prose_texts(content, path.ends_with(".html"));
  if (ends_with_any(path, {".js", ".css"})) return script_texts(content, "//");
  if (content.starts_with("#!") ||
      ends_with_any(path, {".sh", ".sbatch", ".py", ".cmake", "CMakeLists.txt", ".toml"}))
    return script_texts(content, "#");
  return {};
}

std::vector<std::string> sentences_of(std::string_view prose) {
  std::vector<std::string> sentences(1);
  for (std::size_t at = 0; at < prose.size(); ++at) {
    const char c = prose[at];
    const bool is_last = at + 1 == prose.size() || prose[at + 1] == ' ' || prose[at + 1] == '\n';
    const bool ends = c == '|' || ((c == '.' || c == '!' || c == '?' || c == ':') && is_last);
    if (ends)
      sentences.emplace_back();
    else
      sentences.back() += c;
  }
  std::erase_if(sentences, [](const std::string& one) { return trimmed(one).empty(); });
  return sentences;
}

}  // namespace trireme::language
