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

namespace trireme::text {

struct AddedToken;    // tokenizer_spec.hpp
struct PieceDecoder;  // piece_spec.hpp

struct EncodeOptions {
  bool add_special_tokens = true;  // add the tokens of the post-processor
  // If false, added tokens in the text are plain text, so that a user cannot write them.
  bool match_added_tokens = true;
  // If false, the text continues another one. Some models of SentencePiece add a space only at the
  // start of a text.
  bool begins_text = true;
};

/// Byte-level BPE, and the models of SentencePiece (BPE and Unigram), with the ids and texts of
/// Hugging Face `tokenizers` 0.23 for the same tokenizer.json. Immutable after load and
/// thread-safe. Copies share the tables.
///
/// Supported parts of byte-level BPE; others are refused by name with Error(data). The README lists
/// those of SentencePiece.
/// - model: BPE with all 256 bytes
/// - normalizer: null, NFC, NFKC
/// - pre-tokenizer: ByteLevel, Digits, and Split with the patterns of GPT-2, Llama 3, Qwen 2 to
///   3.5, cl100k, o200k and Tekken
/// - added tokens with all flags
/// - post-processor: ByteLevel, TemplateProcessing, Roberta, Bert
/// - Sequences of these
///   memory  a word cache of 18 MiB (36 MiB with ignore_merges) for each thread that encodes at the
///           same time
class Tokenizer {
 public:
  /// Loads a directory with tokenizer.json, or with vocab.json and merges.txt (and optionally
  /// tokenizer_config.json and chat_template.jinja), or a single tokenizer.json. Throws Error(data) if a file is missing,
  /// damaged or not supported.
  static Tokenizer load(const std::filesystem::path& directory_or_file);

  /// Like load, with the contents by file name. `where` names their origin in errors. Other files
  /// are stored unread.
  static Tokenizer from_files(const std::map<std::string, std::string>& files,
                              std::string_view where);

  /// Makes a tokenizer for unreadable files. It knows that there are `num_ids` ids, decodes them to
  /// empty text, and encode throws Error(data) with `reason`. Its content_hash is "".
  static Tokenizer ids_only(const std::map<std::string, std::string>& files, std::uint32_t num_ids,
                            const std::string& reason);

  /// Returns the ids of a text of at most 4 GiB. Throws Error(data) with the byte offset if it is
  /// not valid UTF-8.
  [[nodiscard]] std::vector<std::uint32_t> encode(std::string_view utf8,
                                                  const EncodeOptions& options = {}) const;

  /// Returns valid UTF-8: invalid bytes become U+FFFD. Ids outside the vocabulary are skipped.
  [[nodiscard]] std::string decode(std::span<const std::uint32_t> ids,
                                   bool skip_special_tokens = false) const;

  /// Returns the highest id + 1, including added tokens.
  [[nodiscard]] std::uint32_t vocab_size() const;

  /// Returns the bytes that a token has inside a text; empty if no token has this id. Valid while a
  /// copy of the tokenizer exists.
  [[nodiscard]] std::string_view token_bytes(std::uint32_t id) const;

  /// Returns the content of an added token, which a template writes, else the bytes of the token.
  [[nodiscard]] std::string token_content(std::uint32_t id) const;

  /// Returns the rules of a model of SentencePiece for decoding; null for byte-level BPE.
  [[nodiscard]] const PieceDecoder* piece_decoder() const;
  /// Returns the text of a token before these rules; empty if no token has this id.
  [[nodiscard]] std::string_view piece(std::uint32_t id) const;

  /// Returns true if decode skips the id on request.
  [[nodiscard]] bool is_special(std::uint32_t id) const;
  [[nodiscard]] const std::vector<AddedToken>& added_tokens() const;

  /// The special tokens of tokenizer_config.json; none if the file does not name them.
  [[nodiscard]] std::optional<std::uint32_t> bos_id() const;
  [[nodiscard]] std::optional<std::uint32_t> eos_id() const;
  [[nodiscard]] std::optional<std::uint32_t> pad_id() const;

  /// Returns the files as loaded, byte for byte. They are copied to data sets, runs, checkpoints
  /// and exports.
  [[nodiscard]] const std::map<std::string, std::string>& files() const;

  /// Returns true for a tokenizer made by ids_only().
  [[nodiscard]] bool is_ids_only() const;

  /// Returns the XXH3-128 hash (32 hex digits) of all parts that affect the ids: model, added
  /// tokens, normalizer, pre-tokenizer and post-processor. The hash uses a canonical form, so the
  /// layout of the file and the form of the merges do not matter.
  [[nodiscard]] std::string content_hash() const;

 private:
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl);

  std::shared_ptr<const Impl> impl_;  // shared: copies are cheap and tables never change
};

/// Decodes one id at a time and never splits a character. The concatenated results of push and
/// finish equal Tokenizer::decode of all ids. It keeps a copy of the tokenizer.
///
/// A run of byte tokens of SentencePiece waits for the token after it, because one invalid byte
/// makes all bytes of the run invalid, as in Hugging Face.
class StreamDecoder {
 public:
  /// `begins_text`: if false, the ids continue a text, so a space at the start of the first token
  /// stays.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = false,
                         bool begins_text = true);

  /// Returns the text that is complete after `id`; may be empty.
  std::string push(std::uint32_t id);

  /// Returns the remaining incomplete bytes as U+FFFD and resets the decoder.
  std::string finish();

 private:
  std::string push_piece(std::uint32_t id);
  std::string finish_bytes();
  std::string without_cut(std::string text);

  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  bool begins_text_;
  bool is_first_;            // no token was decoded yet
  std::size_t num_cut_ = 0;  // characters removed at the start
  bool can_cut_;             // the start of the text may continue
  std::string waiting_;      // at most 3 bytes between calls, or a run of byte tokens
};

}  // namespace trireme::text
