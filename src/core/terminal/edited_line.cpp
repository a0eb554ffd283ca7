#include "core/terminal/edited_line.hpp"

#include <algorithm>
#include <cwchar>

#include "core/error.hpp"

namespace trireme {
namespace {

struct CodePoint {
  wchar_t code = 0;
  std::size_t length = 0;  // in bytes; 0: none, or no UTF-8
};

CodePoint first_code_point(std::string_view text) {
  if (text.empty()) return {};
  std::mbstate_t state{};
  wchar_t code = 0;
  const std::size_t length = std::mbrtowc(&code, text.data(), text.size(), &state);
  if (length == static_cast<std::size_t>(-1) || length == static_cast<std::size_t>(-2)) return {};
  return {code, std::max<std::size_t>(length, 1)};
}

bool is_control(std::string_view character) {
  return character.size() == 1 && static_cast<unsigned char>(character.front()) < ' ';
}

std::string shown(const std::string& character) {
  if (!is_control(character)) return character;
  return {'^', static_cast<char>(character.front() + '@')};
}

/// Where the cursor is in rows of `columns`.
struct Place {
  std::size_t row = 0;
  std::size_t column = 0;

  /// A character that does not fit goes to the next row whole.
  void pass(std::size_t width, std::size_t columns) {
    if (column + width > columns) {
      ++row;
      column = 0;
    }
    column += width;
  }

  /// A full row ends where the next begins.
  void settle(std::size_t columns) {
    if (column < columns) return;
    ++row;
    column = 0;
  }
};

}  // namespace

std::size_t columns_of(std::string_view character) {
  if (is_control(character)) return 2;
  const int width = ::wcwidth(first_code_point(character).code);
  return width > 0 ? static_cast<std::size_t>(width) : 0;
}

std::string take_character(std::string_view& text) {
  std::size_t length = first_code_point(text).length;
  if (length == 0) {
    text.remove_prefix(std::min<std::size_t>(text.size(), 1));
    return {};
  }
  while (length < text.size()) {
    const CodePoint mark = first_code_point(text.substr(length));
    if (mark.length == 0 || mark.code == 0 || ::wcwidth(mark.code) != 0) break;
    length += mark.length;
  }
  std::string character(text.substr(0, length));
  text.remove_prefix(length);
  return character;
}

void EditedLine::insert(std::string_view text) {
  while (!text.empty()) {
    std::string character = take_character(text);
    if (character.empty()) continue;
    if (cursor_ > 0 && columns_of(character) == 0) {  // a mark that came alone
      characters_[cursor_ - 1] += character;
      continue;
    }
    characters_.insert(characters_.begin() + static_cast<std::ptrdiff_t>(cursor_),
                       std::move(character));
    ++cursor_;
  }
}

void EditedLine::erase_before() {
  if (cursor_ == 0) return;
  --cursor_;
  erase_at();
}

void EditedLine::erase_at() {
  if (!at_end()) characters_.erase(characters_.begin() + static_cast<std::ptrdiff_t>(cursor_));
}

void EditedLine::erase_to_start() {
  characters_.erase(characters_.begin(),
                    characters_.begin() + static_cast<std::ptrdiff_t>(cursor_));
  cursor_ = 0;
}

void EditedLine::erase_to_end() {
  characters_.resize(cursor_);
}

void EditedLine::erase_word_before() {
  while (cursor_ > 0 && characters_[cursor_ - 1] == " ") erase_before();
  while (cursor_ > 0 && characters_[cursor_ - 1] != " ") erase_before();
}

void EditedLine::left() {
  if (cursor_ > 0) --cursor_;
}

void EditedLine::right() {
  if (!at_end()) ++cursor_;
}

void EditedLine::to_start() {
  cursor_ = 0;
}

void EditedLine::to_end() {
  cursor_ = characters_.size();
}

void EditedLine::set(std::string_view text) {
  characters_.clear();
  cursor_ = 0;
  insert(text);
}

std::string EditedLine::text() const {
  std::string text;
  for (const std::string& character : characters_) text += character;
  return text;
}

std::string EditedLine::redraw(std::string_view prompt, std::size_t columns) {
  std::string out = "\r";
  if (row_ > 0) out += formatted("\x1b[{}A", row_);
  out += "\x1b[J";
  out += prompt;
  Place end;
  for (std::size_t i = 0; i < prompt.size(); ++i) end.pass(1, columns);
  Place cursor = end;
  for (std::size_t i = 0; i < characters_.size(); ++i) {
    out += shown(characters_[i]);
    end.pass(columns_of(characters_[i]), columns);
    if (i + 1 == cursor_) cursor = end;
  }
  // A terminal stays behind the last column until there is more to show.
  if (end.column >= columns) out += "\r\n";
  end.settle(columns);
  cursor.settle(columns);
  if (end.row > cursor.row) out += formatted("\x1b[{}A", end.row - cursor.row);
  out += "\r";
  if (cursor.column > 0) out += formatted("\x1b[{}C", cursor.column);
  row_ = cursor.row;
  return out;
}

std::string EditedLine::leave(std::string_view prompt, std::size_t columns) {
  to_end();
  std::string out = redraw(prompt, columns) + "\r\n";
  row_ = 0;
  return out;
}

}  // namespace trireme
