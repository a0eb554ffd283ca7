#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Lines of standard input, one after another.
///
/// On a terminal a line is edited (keys as in ~/.inputrc, Ctrl-R searches, Up recalls), a pasted text
/// of several lines is one, and characters count as many columns as they take. Elsewhere, and in a
/// build without Readline, lines come as they are. One at a time; call use_utf8_locale first.
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
  [[nodiscard]] bool edits() const { return edits_; }

 private:
  Result read_plain(std::string& line);
  Result read_edited(std::string_view prompt, std::string& line);

  Options options_;
  bool edits_ = false;
};

}  // namespace trireme
