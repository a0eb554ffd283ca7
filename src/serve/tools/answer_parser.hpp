#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// The text that opens a call in an answer.
inline constexpr std::string_view kOpenCall = "<tool_call>";

/// A call that an answer makes.
struct AnswerCall {
  std::string id;
  std::string name;
  std::string arguments;  // a JSON object
};

/// What became certain of an answer; the pieces of push and finish, joined, are the whole.
struct AnswerPiece {
  std::string thought;
  std::string content;
  std::vector<AnswerCall> calls;

  [[nodiscard]] bool empty() const { return thought.empty() && content.empty() && calls.empty(); }
};

/// What an answer may have besides text.
struct AnswerForm {
  bool begins_in_thought = false;       // the prompt has opened one
  bool several_calls = true;            // false: what follows the first call is dropped
  std::vector<std::string> tools = {};  // names that calls may have; empty: there are no calls
};

/// Finds where a call ends, in a text that grows: white space, a JSON object, white space and
/// "</tool_call>". Looks at each byte once.
class CallReader {
 public:
  enum class Result { more, complete, malformed };

  /// `text` is all since the opening marker, each time longer.
  Result read(std::string_view text);

  /// Returns the bytes of a complete object. size() counts all bytes up to the end of the marker.
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
  std::size_t marker_ = 0;  // bytes of the closing one that were read
};

/// Takes the text of an answer apart, in pieces as they come: a thought <think> .. </think> at its
/// beginning, then content, and in it calls <tool_call> {"name", "arguments"} </tool_call>. A call that
/// is no such JSON, is of no known tool or does not end stays content. Line ends around a thought and
/// white space around calls belong to the template and are dropped; no other text is.
class AnswerParser {
 public:
  explicit AnswerParser(AnswerForm form);

  AnswerPiece push(std::string_view text);
  /// The answer has ended: what was held back.
  AnswerPiece finish();

  [[nodiscard]] bool has_calls() const noexcept { return num_calls_ > 0; }

  /// Nothing that may come will be part of the answer.
  [[nodiscard]] bool is_complete() const noexcept { return num_calls_ > 0 && !form_.several_calls; }

 private:
  enum class State { begin, thought, after_thought, content, call };

  /// One step; false if more text is needed.
  bool advance(AnswerPiece& piece);
  bool begin_answer();
  bool read_thought(AnswerPiece& piece);
  bool read_content(AnswerPiece& piece);
  bool read_call(AnswerPiece& piece);
  void add_thought(std::string_view text, AnswerPiece& piece);
  void add_content(std::string_view text, AnswerPiece& piece);

  AnswerForm form_;
  State state_;
  std::string text_;           // not handed out yet
  std::string thought_lines_;  // line ends that the thought may go on after
  std::string content_space_;  // white space that the content may go on after
  bool has_thought_ = false;
  CallReader call_;
  std::size_t num_calls_ = 0;
};

/// Returns an id of an answer ("chatcmpl-...") or of a call ("call_..."): `prefix` and 24 random letters
/// and digits. Safe from any thread.
std::string random_id(std::string_view prefix);

}  // namespace trireme
