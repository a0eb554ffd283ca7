#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Reads lines of standard input.
///
/// On a terminal, lines are edited (keys as in ~/.editrc, Ctrl-R searches, Up recalls). Pasted text
/// of several lines is one result, and wide characters take their real width. Without a terminal or
/// libedit, lines are read unchanged. Only one reader may exist at a time; call use_utf8_locale()
/// first.
class LineReader {
 public:
  struct Options {
    std::filesystem::path history = {};      // file of earlier lines, read and extended; "": none
    std::vector<std::string> commands = {};  // "/help", ...; the Tab key completes them
  };

  /// Ignores a history that cannot be read.
  explicit LineReader(Options options);
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  /// Writes the history and restores the terminal.
  ~LineReader();

  enum class Result { line, interrupt, end };

  /// Reads the next line without its end. `interrupt`: Ctrl-C discarded the typed text (needs
  /// CatchInterrupts). `end`: Ctrl-D or the end of the input. Throws Error(resource).
  Result read(std::string_view prompt, std::string& line);

  /// Returns true if lines are edited.
  [[nodiscard]] bool edits() const { return editor_ != nullptr; }

 private:
  Result read_plain(std::string& line);
  Result read_edited(std::string_view prompt, std::string& line);

  class Editor;
  class KeyWait;

  Options options_;
  std::unique_ptr<Editor> editor_;  // null without a terminal or libedit
};

}  // namespace trireme
