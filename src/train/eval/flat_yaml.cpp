#include "train/eval/flat_yaml.hpp"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::train {
namespace {

class YamlReader {
 public:
  YamlReader(std::string_view content, std::string_view name) : content_(content), name_(name) {}

  std::vector<YamlRecord> records_of(std::string_view key);

 private:
  [[nodiscard]] std::string where() const {
    const std::string_view before = content_.substr(0, at_);
    return cat(name_, ":", 1 + std::count(before.begin(), before.end(), '\n'));
  }

  [[noreturn]] void refuse(std::string_view problem) const {
    fail(ErrorKind::data,
         "{}: {}. The file must be a list of mappings with texts, numbers and lists of them",
         where(), problem);
  }

  [[nodiscard]] bool ended() const { return at_ >= content_.size(); }

  [[nodiscard]] char now() const { return ended() ? '\n' : content_[at_]; }

  /// Returns the column of the current position.
  [[nodiscard]] std::size_t column() const {
    const std::size_t line = content_.substr(0, at_).rfind('\n');
    return line == std::string_view::npos ? at_ : at_ - line - 1;
  }

  [[nodiscard]] bool at_dash() const {
    return now() == '-' && (at_ + 1 >= content_.size() || content_[at_ + 1] == ' ' ||
                            content_[at_ + 1] == '\n' || content_[at_ + 1] == '\r');
  }

  void skip_spaces() {
    while (!ended() && (now() == ' ' || now() == '\r')) ++at_;
  }

  void skip_line() {
    while (!ended() && now() != '\n') ++at_;
    if (!ended()) ++at_;
  }

  void next_content();
  void end_of_line();
  std::string key();
  std::string scalar(bool in_list);
  std::string single_quoted();
  std::string double_quoted();
  void fold(std::string& text);
  void escape(std::string& text);
  std::vector<std::string> flow_list();
  std::vector<std::string> block_list(std::size_t indent);
  YamlField field(std::size_t indent);
  YamlRecord record(std::size_t list_indent);

  std::string_view content_;
  std::string_view name_;
  std::size_t at_ = 0;
};

/// Moves to the first character of the next line that has content, or to the end.
void YamlReader::next_content() {
  while (!ended()) {
    skip_spaces();
    if (now() == '\t') refuse("a tab is not allowed at the start of a line");
    if (now() != '#' && now() != '\n') return;
    skip_line();
  }
}

/// Checks that only a comment follows on this line, and moves to the next content.
void YamlReader::end_of_line() {
  const bool spaced = now() == ' ';
  skip_spaces();
  if (now() != '\n' && !(spaced && now() == '#')) refuse("there is text after the value");
  skip_line();
  next_content();
}

std::string YamlReader::key() {
  std::string name;
  if (now() == '"' || now() == '\'') {
    name = now() == '"' ? double_quoted() : single_quoted();
  } else {
    while (std::isalnum(static_cast<unsigned char>(now())) != 0 || now() == '_' || now() == '-')
      name += content_[at_++];
  }
  if (name.empty() || now() != ':') refuse("this line must begin with a key and a colon");
  ++at_;
  if (now() != ' ' && now() != '\n' && now() != '\r') refuse("a space must follow the colon");
  return name;
}

/// Appends the line break at the current position, and skips the white space around it: one break
/// is a space, n breaks are n - 1 line ends.
void YamlReader::fold(std::string& text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.pop_back();
  std::size_t breaks = 0;
  while (!ended() && (now() == '\n' || now() == ' ' || now() == '\t' || now() == '\r')) {
    if (now() == '\n') ++breaks;
    ++at_;
  }
  text += breaks == 1 ? std::string(" ") : std::string(breaks - 1, '\n');
}

std::string YamlReader::single_quoted() {
  std::string text;
  for (++at_;;) {
    if (ended()) refuse("a closing ' is missing");
    if (now() == '\n') {
      fold(text);
    } else if (now() != '\'') {
      text += content_[at_++];
    } else if (at_ + 1 < content_.size() && content_[at_ + 1] == '\'') {
      text += '\'';
      at_ += 2;
    } else {
      ++at_;
      return text;
    }
  }
}

/// Reads the escape after a backslash in a double-quoted text.
void YamlReader::escape(std::string& text) {
  const char letter = now();
  if (letter == '\n') {  // the line continues without a space
    while (!ended() && (now() == '\n' || now() == ' ' || now() == '\t')) ++at_;
    return;
  }
  constexpr std::string_view kLetters = "nrt0\"\\/ ";
  constexpr std::string_view kCharacters("\n\r\t\0\"\\/ ", kLetters.size());
  const std::size_t found = kLetters.find(letter);
  if (found == std::string_view::npos)
    refuse(cat("the escape \\", content_.substr(at_, 1), " is not supported"));
  text += kCharacters[found];
  ++at_;
}

std::string YamlReader::double_quoted() {
  std::string text;
  for (++at_;;) {
    if (ended()) refuse("a closing \" is missing");
    if (now() == '"') {
      ++at_;
      return text;
    }
    if (now() == '\n') {
      fold(text);
    } else if (now() == '\\') {
      ++at_;
      escape(text);
    } else {
      text += content_[at_++];
    }
  }
}

/// Reads a scalar on this line. `in_list`: a comma or "]" ends it, too.
std::string YamlReader::scalar(bool in_list) {
  if (now() == '"') return double_quoted();
  if (now() == '\'') return single_quoted();
  if (std::string_view("&*!|>%@`{?").find(now()) != std::string_view::npos)
    refuse(cat("a value that begins with ", content_.substr(at_, 1), " is not supported"));
  const std::size_t begin = at_;
  while (now() != '\n') {
    if (now() == '#' && at_ > begin && content_[at_ - 1] == ' ') break;
    if (now() == ':' && (at_ + 1 == content_.size() || content_[at_ + 1] == ' '))
      refuse("a text with a colon and a space must be in quotes");
    if (in_list && (now() == ',' || now() == ']')) break;
    ++at_;
  }
  std::string_view text = content_.substr(begin, at_ - begin);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) {
    text.remove_suffix(1);
    --at_;
  }
  return std::string(text);
}

std::vector<std::string> YamlReader::flow_list() {
  std::vector<std::string> list;
  ++at_;
  skip_spaces();
  while (now() != ']') {
    if (now() == '[') refuse("a list in a list is not supported");
    list.push_back(scalar(/*in_list=*/true));
    skip_spaces();
    if (now() == ',') {
      ++at_;
      skip_spaces();
    } else if (now() != ']') {
      refuse("a list must end with ] on its line");
    }
  }
  ++at_;
  return list;
}

std::vector<std::string> YamlReader::block_list(std::size_t indent) {
  std::vector<std::string> list;
  while (!ended() && column() == indent && at_dash()) {
    ++at_;
    skip_spaces();
    list.push_back(scalar(/*in_list=*/false));
    end_of_line();
  }
  return list;
}

/// Reads the value after a key at column `indent`, and moves to the next content. A value of
/// another form is skipped.
YamlField YamlReader::field(std::size_t indent) {
  YamlField field{where(), std::nullopt, std::nullopt};
  skip_spaces();
  const bool is_empty = now() == '\n' || now() == '#';
  if (now() == '[') {
    field.list = flow_list();
  } else if (!is_empty && now() != '|' && now() != '>' && now() != '{') {
    field.text = scalar(/*in_list=*/false);
  } else {
    skip_line();
    next_content();
    if (is_empty && !ended() && at_dash() && column() >= indent) {
      field.list = block_list(column());
    } else if (is_empty && (ended() || column() <= indent)) {
      field.text = "";
    }
    while (!ended() && column() > indent) {
      field.list = std::nullopt;
      skip_line();
      next_content();
    }
    return field;
  }
  end_of_line();
  while (!ended() && column() > indent) {  // a value of several lines
    field.text = std::nullopt;
    field.list = std::nullopt;
    skip_line();
    next_content();
  }
  return field;
}

YamlRecord YamlReader::record(std::size_t list_indent) {
  YamlRecord record{where(), {}};
  ++at_;  // the dash
  next_content();
  const std::size_t indent = column();
  if (ended() || indent <= list_indent) refuse("a member of the list has no keys");
  while (!ended() && column() == indent && !at_dash()) {
    const std::string place = where();
    const std::string name = key();
    if (!record.fields.emplace(name, field(indent)).second)
      fail(ErrorKind::data, "{}: the key '{}' appears twice", place, name);
  }
  if (!ended() && column() > list_indent) refuse("the indentation differs from the lines before");
  return record;
}

std::vector<YamlRecord> YamlReader::records_of(std::string_view wanted) {
  next_content();
  if (content_.substr(at_).starts_with("---")) {
    skip_line();
    next_content();
  }
  while (!ended()) {
    if (column() != 0) refuse("the indentation differs from the lines before");
    const std::string name = key();
    if (name == wanted) {
      end_of_line();
      std::vector<YamlRecord> records;
      const std::size_t indent = column();
      while (!ended() && column() == indent && at_dash()) records.push_back(record(indent));
      if (records.empty()) refuse(cat("the value of '", wanted, "' must be a list"));
      if (!ended() && column() != 0) refuse("the indentation differs from the lines before");
      return records;
    }
    skip_line();
    next_content();
    while (!ended() && (column() > 0 || at_dash())) {
      skip_line();
      next_content();
    }
  }
  fail(ErrorKind::data, "{} has no key '{}'", name_, wanted);
}

/// Returns the records of a document in JSON.
std::vector<YamlRecord> records_of_json(std::string_view content, std::string_view name,
                                        std::string_view key) {
  const Json document = parse_json(content, name);
  const auto list = document.find(key);
  if (list == document.end() || !list->is_array())
    fail(ErrorKind::data, "{} has no list '{}'", name, key);
  const auto scalar = [](const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  std::vector<YamlRecord> records;
  for (const Json& one : *list) {
    YamlRecord record{cat(name, ": member ", records.size() + 1, " of '", key, "'"), {}};
    if (!one.is_object()) fail(ErrorKind::data, "{} is not a mapping", record.where);
    for (const auto& [field, value] : one.items()) {
      YamlField& made = record.fields[field];
      made.where = record.where;
      if (value.is_array()) {
        made.list.emplace();
        for (const Json& member : value) made.list->push_back(scalar(member));
      } else if (!value.is_object()) {
        made.text = scalar(value);
      }
    }
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace

std::vector<YamlRecord> read_yaml_records(std::string_view content, std::string_view name,
                                          std::string_view key) {
  text::check_utf8(content, name);
  const std::size_t first = content.find_first_not_of(" \r\n");
  if (first != std::string_view::npos && content[first] == '{')
    return records_of_json(content, name, key);
  return YamlReader(content, name).records_of(key);
}

}  // namespace trireme::train
