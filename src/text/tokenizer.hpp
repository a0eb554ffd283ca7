#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct AddedToken;  // tokenizer_spec.hpp

struct EncodeOptions {
  bool add_special_tokens = true;  // what the post-processor puts around a text
  // False: added tokens in the text are plain text, so user text cannot forge them.
  bool match_added_tokens = true;
};

/// Byte-level BPE that gives the ids and the text of Hugging Face `tokenizers`
/// 0.23 for the same tokenizer.json.
///
/// Immutable after load: encode and decode are const and safe from any number of threads; a copy
/// shares the tables. Supported: BPE with all 256 bytes; normalizer null or NFC; ByteLevel, Digits
/// and Split with the patterns of GPT-2, Llama 3, Qwen 2 to 3.5, cl100k, o200k and Tekken; added
/// tokens with all flags; post-processors ByteLevel, TemplateProcessing, Roberta and Bert;
/// Sequences of these. Anything else is an Error(data) that names it.
///   memory  a word cache of 18 MiB (36 with ignore_merges) for each thread that encodes at the
///   same time
class Tokenizer {
 public:
  /// A folder with tokenizer.json (and, if present, tokenizer_config.json and chat_template.jinja),
  /// or the one file. Throws Error(data) if a file is absent, damaged or not supported.
  static Tokenizer load(const std::filesystem::path& folder_or_file);

  /// The same from contents by file name; `where` names their origin in errors. Other files are
  /// kept, not read.
  static Tokenizer from_files(const std::map<std::string, std::string>& files,
                              std::string_view where);

  /// Stands for a tokenizer that cannot be read: it knows that there are ids below `num_ids`, decodes
  /// them to nothing, and encode throws Error(data) with `reason`. Its content_hash is "".
  static Tokenizer ids_only(const std::map<std::string, std::string>& files, std::uint32_t num_ids,
                            const std::string& reason);

  /// Ids of a text of at most 4 GiB. Throws Error(data) with the byte offset if
  /// it is not valid UTF-8.
  [[nodiscard]] std::vector<std::uint32_t> encode(std::string_view utf8,
                                                  const EncodeOptions& options = {}) const;

  /// Always valid UTF-8: bytes that form no character become U+FFFD.
  /// Ids outside the vocabulary are left out.
  [[nodiscard]] std::string decode(std::span<const std::uint32_t> ids,
                                   bool skip_special_tokens = false) const;

  /// Highest id + 1, added tokens counted.
  [[nodiscard]] std::uint32_t vocab_size() const;

  /// The raw bytes that an id stands for; empty if no token has this id.
  /// Valid as long as a copy of the tokenizer.
  [[nodiscard]] std::string_view token_bytes(std::uint32_t id) const;

  /// True for ids that decode leaves out on request.
  [[nodiscard]] bool is_special(std::uint32_t id) const;

  /// In file order.
  [[nodiscard]] const std::vector<AddedToken>& added_tokens() const;

  /// From tokenizer_config.json; none without it or if it says null.
  [[nodiscard]] std::optional<std::uint32_t> bos_id() const;
  [[nodiscard]] std::optional<std::uint32_t> eos_id() const;
  [[nodiscard]] std::optional<std::uint32_t> pad_id() const;

  /// What travels to sets, runs, checkpoints and exports, byte for byte as loaded.
  [[nodiscard]] const std::map<std::string, std::string>& files() const;

  /// Returns true for a tokenizer that ids_only() made: it reads no text.
  [[nodiscard]] bool is_ids_only() const;

  /// XXH3-128 (32 hex digits) of what decides the ids: model, added tokens, normalizer,
  /// pre-tokenizer and post-processor, in a canonical form, so that layout of the file and form of
  /// the merges do not count.
  [[nodiscard]] std::string content_hash() const;

 private:
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl);

  std::shared_ptr<const Impl> impl_;  // shared: copies are cheap and tables are never changed
};

/// Decodes id by id without ever cutting a character: what is not complete waits.
/// The pieces of push and finish, joined, equal Tokenizer::decode of all ids.
/// Keeps its own copy of the tokenizer.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = false);

  /// The text that became certain with `id`; may be empty.
  std::string push(std::uint32_t id);

  /// What still waited, as U+FFFD. The decoder is then as new.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  std::string waiting_;  // at most 3 bytes between calls
};

}  // namespace trireme
