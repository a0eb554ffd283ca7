#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Lines of standard input, one after another.
///
/// On a terminal a line is edited (keys as in ~/.editrc, Ctrl-R searches, Up recalls), a text of
/// several lines that comes at once (pasted) is one, and characters count as many columns as they
/// take. Elsewhere, and in a build without libedit, lines come as they are. One at a time; call
/// use_utf8_locale first.
class LineReader {
 public:
  struct Options {
    std::filesystem::path history = {};      // of earlier lines, read and added to; "": none
    std::vector<std::string> commands = {};  // "/help", ..: the Tab key completes them
  };

  /// A history that cannot be read is as none.
  explicit LineReader(Options options);
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  /// Writes the history. The terminal is as before.
  ~LineReader();

  enum class Result { line, interrupt, end };

  /// The next line without its end. `interrupt`: Ctrl-C, which threw away what was typed (needs
  /// CatchInterrupts). `end`: Ctrl-D or the end of the input. Throws Error(resource) if it cannot be
  /// read.
  Result read(std::string_view prompt, std::string& line);

  /// Whether lines are edited.
  [[nodiscard]] bool edits() const { return editor_ != nullptr; }

 private:
  Result read_plain(std::string& line);
  Result read_edited(std::string_view prompt, std::string& line);

  class Editor;

  Options options_;
  std::unique_ptr<Editor> editor_;  // null: nobody types, or no libedit
};

}  // namespace trireme
