#pragma once
#include <termios.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/terminal/edited_line.hpp"

namespace trireme {

/// Lines of standard input, one after another.
///
/// On a terminal a line is edited: arrows, Home, End, Ctrl-A E B F, Delete, Ctrl-U K W, Up and Down
/// for earlier lines; a pasted text of several lines is one, and characters count as many columns as
/// they take. From its beginning to its end the terminal neither echoes nor gathers lines, so keys that
/// are pressed between two lines wait for the next, Ctrl-D too. Elsewhere lines come as they are. One
/// at a time; call use_utf8_locale first.
class LineReader {
 public:
  struct Options {
    std::filesystem::path history = {};      // of earlier lines, read and added to; "": none
    std::vector<std::string> commands = {};  // "/help", ..: the Tab key completes them
  };

  /// A history that is not there is empty. Throws as read_text, and Error(data) for one that is not a
  /// JSON text a line.
  explicit LineReader(Options options);
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  /// The terminal is as before.
  ~LineReader();

  enum class Result { line, interrupt, end };

  /// The next line without its end. `interrupt`: Ctrl-C, which threw away what was typed. `end`: Ctrl-D
  /// on an empty line, or the end of the input. Throws Error(resource) if it cannot be read, or the
  /// history not be written.
  Result read(std::string_view prompt, std::string& line);

  /// Whether lines are edited.
  [[nodiscard]] bool edits() const { return before_.has_value(); }

 private:
  Result read_plain(std::string& line);
  Result read_edited(std::string_view prompt, std::string& line);
  /// Handles a key; a result ends the line.
  std::optional<Result> press(unsigned char key);
  void press_escape();
  void recall(std::ptrdiff_t step);
  void complete();
  void remember(const std::string& line);
  /// A key; none: the input has ended, or none came in time.
  std::optional<unsigned char> next_key(int timeout_ms = -1);
  std::string pasted();
  void set_terminal(bool typing) const;

  Options options_;
  std::optional<termios> before_;  // of a terminal
  std::vector<std::string> history_;
  std::size_t recalled_ = 0;  // of history_; its size: the new line
  std::string newest_;        // the new line while an earlier one is shown
  EditedLine line_;
};

}  // namespace trireme
