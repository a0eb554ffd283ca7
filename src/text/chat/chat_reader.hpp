#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/conversation.hpp"
#include "text/chat/record_forms.hpp"
#include "text/json/unread_field.hpp"

namespace trireme::text {

/// The reason why a JSON object is not a valid record.
struct ChatProblem {
  std::string reason;  // "message 2: unknown role 'bot', must be system, user, assistant or tool"
  bool bad_text = false;    // a lone surrogate or invalid UTF-8, which a repair may fix
  bool other_form = false;  // the record has another form of the table than the one that was set
};

/// Reads conversations from JSON objects. One object reads many records; not thread-safe.
///
/// record_forms() lists the forms of records. All of them become messages. A message is {"role", "content"} and may have these fields:
///   "reasoning_content"  for an assistant
///   "tool_calls"         for an assistant: a list, or a string that holds a list as JSON. A call
///                        is {"name", "arguments"} or an object with such a "function". Arguments
///                        that are a string must be JSON, except in a request. "function_call" is
///                        the older form of one call.
///   "tools"              for a system message: a list, or a string that holds a list as JSON
///   "weight", "train"    0 or false excludes this answer from training. All values except 0, 1,
///   false and true are refused.
/// Other rules:
/// - Role developer is read as system, and role function as tool.
/// - Tools come from the last system message that has some, otherwise from the field "tools" of the
///   record. JSON in a chat has the layout of Python's json.dumps.
/// - A string in the field "system" becomes the first system message. It is refused if there is a
///   system message.
/// - Content may be null only if the message has a thought or a call. A list of parts {"type":
///   "text", "text"} is joined, one line for each; parts of other types are refused.
/// - A conversation must have an answer.
/// - A message of ShareGPT is {"from", "value"}, with "weight" and "train". The value from
///   function_call is JSON: a call or a list of calls.
/// - The question of an Alpaca record is "instruction" and "input", joined by a newline. Its
///   "history" is a list of [question, answer], and these answers are trained too.
/// - In a record of prompt and completion, only answers of the completion are trained. Both are a
///   text or a list of messages.
/// - A side of a preference pair is a list of messages, after an optional "prompt"; or a text,
///   after the text "prompt" or the fields of an Alpaca record; or one message, after the list
///   "conversations" or "messages".
/// - A labeled answer is a prompt and a completion, a list of messages that ends with the answer, or
///   an Alpaca record. Its field "label" or "kto_tag" is true or false (also 1 or 0, 1.0 or 0.0).
/// - A prompt of reinforcement learning is a list of messages in "conversations", "messages" or
///   "prompt" without its last message if that is an answer, or a text "prompt". Its other fields
///   are not read and not listed.
/// - The last of equal keys counts. Other fields are not read, and unread() lists them.
/// - Numbers are read as in Python's json, also integers beyond 64 bits, 1e999, NaN and Infinity.
/// Source: MiniMind's data sets, OpenAI's chat API, the data formats of LLaMA-Factory and TRL.
class ChatReader {
 public:
  /// `fields`: empty, or names of the fields to read instead of the usual ones: two strings of user
  /// and assistant (conversation), prompt, chosen and rejected (pair), or prompt, completion and
  /// label (answer).
  explicit ChatReader(ChatForm form, std::vector<std::string> fields = {});
  ChatReader(ChatReader&&) noexcept;
  ChatReader& operator=(ChatReader&&) noexcept;
  ChatReader(const ChatReader&) = delete;
  ChatReader& operator=(const ChatReader&) = delete;
  ~ChatReader();

  /// Sets the form of the next records: a row of record_forms(). Null (default): each record may
  /// have another form.
  void set_form(const RecordForm* form);

  /// Returns the form of an object, or null. Padding: like read.
  const RecordForm* recognize(const char* json, std::size_t size);

  /// Reads one object. 64 bytes after its `size` bytes must be readable. On success,
  /// `conversations` has one (conversation) or two (chosen, rejected) entries.
  /// A labeled answer also has two: the chosen entry ends with the answer if it is desirable, and
  /// the rejected entry if not. The other entry is the prompt.
  std::optional<ChatProblem> read(const char* json, std::size_t size,
                                  std::vector<Conversation>& conversations);

  /// Returns the non-empty fields of the last record that were not read, sorted by name; empty if
  /// the record was refused or is a request.
  [[nodiscard]] const std::vector<UnreadField>& unread() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::text
