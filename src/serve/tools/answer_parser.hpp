#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::serve {

inline constexpr std::string_view kOpenThought = "<think>";
inline constexpr std::string_view kCloseThought = "</think>";
inline constexpr std::string_view kOpenCall = "<tool_call>";

/// A tool call in an answer.
struct AnswerCall {
  std::string id;
  std::string name;
  std::string arguments;  // a JSON object
};

/// New parts of an answer. All results of push and finish together are the whole answer.
struct AnswerDelta {
  std::string thought;
  std::string content;
  std::vector<AnswerCall> calls;

  [[nodiscard]] bool empty() const { return thought.empty() && content.empty() && calls.empty(); }
};

/// Defines what an answer may contain in addition to text.
struct AnswerForm {
  bool begins_in_thought = false;       // the prompt has opened a thought
  bool several_calls = true;            // false: text after the first call is dropped
  std::vector<std::string> tools = {};  // tools that may be called; empty: calls are plain text
};

/// Finds the end of a call in a growing text: white space, a JSON object, white space and
/// "</tool_call>". Reads each byte once.
class CallReader {
 public:
  enum class Result { more, complete, malformed };

  /// `text` is the whole text since the opening marker.
  Result read(std::string_view text);

  /// Returns the bytes of the complete JSON object. size() counts all bytes up to the end of the
  /// closing marker.
  [[nodiscard]] std::string_view object(std::string_view text) const {
    return text.substr(begin_, end_ - begin_);
  }

  [[nodiscard]] std::size_t size() const noexcept { return at_; }

  void reset() { *this = CallReader(); }

 private:
  enum class Where { before, object, text, escape, after };

  Result step(char c);

  Where where_ = Where::before;
  std::size_t at_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t depth_ = 0;
  std::size_t marker_ = 0;  // number of bytes of the closing marker that were read
};

/// Splits the text of an answer while it is generated: first an optional thought <think> ..
/// </think>, then content with calls <tool_call> {"name", "arguments"} </tool_call>. If a call is
/// not valid JSON, names an unknown tool or does not end, it stays content. Newlines around a
/// thought and white space around calls belong to the chat template and are dropped.
class AnswerParser {
 public:
  explicit AnswerParser(AnswerForm form);

  AnswerDelta push(std::string_view text);
  /// Ends the answer and returns the text that was held back.
  AnswerDelta finish();

  [[nodiscard]] bool has_calls() const noexcept { return num_calls_ > 0; }

  /// Returns true if a thought has begun and has not ended.
  [[nodiscard]] bool is_in_thought() const noexcept { return state_ == State::thought; }

  /// Returns true if all further text would be dropped.
  [[nodiscard]] bool is_complete() const noexcept { return num_calls_ > 0 && !form_.several_calls; }

 private:
  enum class State { begin, thought, after_thought, content, call };

  /// Makes one step. Returns false if more text is needed.
  bool advance(AnswerDelta& out);
  bool begin_answer();
  bool read_thought(AnswerDelta& out);
  bool read_content(AnswerDelta& out);
  bool read_call(AnswerDelta& out);
  void add_thought(std::string_view text, AnswerDelta& out);
  void add_content(std::string_view text, AnswerDelta& out);

  AnswerForm form_;
  State state_;
  std::string text_;           // text that was not processed yet
  std::string thought_lines_;  // newlines that belong to the thought if it continues
  std::string content_space_;  // white space that belongs to the content if it continues
  bool has_thought_ = false;
  CallReader call_;
  std::size_t num_calls_ = 0;
};

/// Returns `prefix` and 24 random letters and digits, as id of an answer ("chatcmpl-...") or of a
/// call ("call_..."). Thread-safe.
std::string random_id(std::string_view prefix);

}  // namespace trireme::serve
