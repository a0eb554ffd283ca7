#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Columns that a character (UTF-8, with the marks that stand on it) takes in a terminal: 2 of Chinese
/// ones; a control character is shown as ^J. Needs use_utf8_locale.
std::size_t columns_of(std::string_view character);

/// Takes the first character off `text`: a code point, and the marks of no width behind it. A byte that
/// is no UTF-8 is dropped: "".
std::string take_character(std::string_view& text);

/// A line that is typed, and the cursor in it, by characters.
class EditedLine {
 public:
  void insert(std::string_view text);
  void erase_before();
  void erase_at();
  void erase_to_start();
  void erase_to_end();
  void erase_word_before();
  void left();
  void right();
  void to_start();
  void to_end();
  /// Another line in its place, the cursor behind it.
  void set(std::string_view text);

  [[nodiscard]] bool empty() const { return characters_.empty(); }

  [[nodiscard]] bool at_end() const { return cursor_ == characters_.size(); }

  [[nodiscard]] std::string text() const;

  /// What makes the terminal show it behind `prompt` (ASCII), in rows of `columns`; the cursor is where
  /// the last call left it, or at the start of a row for the first.
  std::string redraw(std::string_view prompt, std::size_t columns);

  /// To the row below it; the next redraw is a first one.
  std::string leave(std::string_view prompt, std::size_t columns);

 private:
  std::vector<std::string> characters_;
  std::size_t cursor_ = 0;
  std::size_t row_ = 0;  // of the cursor on the screen, below the prompt's
};

}  // namespace trireme
