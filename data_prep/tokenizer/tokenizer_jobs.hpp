#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "core/fields.hpp"
#include "data_prep/documents/jsonl_record.hpp"
#include "data_prep/input/input_format.hpp"
#include "data_prep/progress.hpp"
#include "data_prep/tokenizer_path.hpp"
#include "data_prep/worker_pool.hpp"
#include "text/learn/bpe_trainer.hpp"
#include "text/split/splitter.hpp"

/// Settings and jobs of `trireme-data tokenizer train|encode|decode`.
namespace trireme::data_prep {

/// Returns the values of --pattern.
std::vector<std::string> split_pattern_names();
text::SplitStep split_pattern_named(const std::string& name);

inline constexpr double kMostTokens = 2147483647;

struct TrainTokenizerConfig {
  std::vector<std::string> inputs;
  std::string output;
  std::int64_t vocab_size = 6400;
  std::string field = "text";
  std::string pattern = "gpt2";
  std::string unit = "text";
  std::int64_t min_frequency = 0;
  std::int64_t max_token_length = 0;
  std::string alphabet = "bytes";
  std::int64_t limit_alphabet = 0;
  std::string special_tokens = "minimind";
  std::string special_in_text = "text";
  std::string bos_token;
  std::string eos_token;
  std::string pad_token;
  std::string unk_token;
  std::string on_bad_text = "error";
  std::int64_t threads = 0;
  std::string progress = "auto";

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("input", self.inputs, input_help(), {.placeholder = "FILE...", .required = true});
    visit("output", self.output, "directory for tokenizer.json and tokenizer_config.json",
          {.placeholder = "DIR", .required = true});
    visit("vocab_size", self.vocab_size,
          "number of tokens, including the special tokens and the 256 bytes",
          {.placeholder = "N", .least = 1, .most = kMostTokens});
    visit("field", self.field, "field that holds the text", {.placeholder = "NAME"});
    visit("pattern", self.pattern, "rule that splits texts into words",
          {.values = split_pattern_names()});
    visit("unit", self.unit,
          "unit to split into words; line is the unit of Hugging Face's train(files)",
          {.values = {"text", "line"}});
    visit("min_frequency", self.min_frequency, "minimum frequency of a pair to be merged",
          {.placeholder = "N", .least = 0, .most = kMostTokens});
    visit("max_token_length", self.max_token_length,
          "learned tokens are shorter than N bytes (0: no limit)",
          {.placeholder = "N", .least = 0, .most = kMostTokens});
    visit("alphabet", self.alphabet, "add tokens for all 256 bytes, or only for used bytes",
          {.values = {"bytes", "used"}});
    visit("limit_alphabet", self.limit_alphabet,
          "add tokens only for the N most frequent characters (0: all)",
          {.placeholder = "N", .least = 0, .most = kMostTokens});
    visit(
        "special_tokens", self.special_tokens,
        "the 36 tokens of MiniMind-3, none, or a JSON list of tokens or {\"content\", \"special\"}",
        {.placeholder = "minimind|none|FILE"});
    visit("special_in_text", self.special_in_text,
          "treat special tokens in the texts as plain text, or cut them out and count them as "
          "separate words (as if added to the tokenizer before training)",
          {.values = {"text", "allow"}});
    visit("bos_token", self.bos_token, "special token that begins a text",
          {.placeholder = "TOKEN"});
    visit("eos_token", self.eos_token, "special token that ends a text", {.placeholder = "TOKEN"});
    visit("pad_token", self.pad_token, "special token for padding", {.placeholder = "TOKEN"});
    visit("unk_token", self.unk_token, "special token for unknown text", {.placeholder = "TOKEN"});
    visit("on_bad_text", self.on_bad_text, "handling of lone surrogates and invalid UTF-8",
          {.values = on_bad_text_names()});
    visit("threads", self.threads,
          "number of counting threads on each rank; 0: all CPUs of this process",
          {.placeholder = "N", .least = 0, .most = kMaxThreads});
    visit("progress", self.progress, "progress display", {.values = progress_mode_names()});
  }
};

struct EncodeConfig {
  std::string tokenizer;
  std::string input;
  std::string output;
  std::string field = "text";
  bool add_special_tokens = true;
  std::string special_in_text = "allow";
  std::string on_bad_text = "error";
  std::int64_t threads = 0;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("tokenizer", self.tokenizer, kTokenizerPathHelp,
          {.placeholder = "DIR|FILE", .required = true});
    visit("input", self.input, input_format_names(), {.placeholder = "FILE", .required = true});
    visit("output", self.output, "output file with one {\"ids\":[...]} per line, in the same order",
          {.placeholder = "FILE", .required = true});
    visit("field", self.field, "field that holds the text", {.placeholder = "NAME"});
    visit("add_special_tokens", self.add_special_tokens,
          "add the special tokens of the tokenizer's post-processor",
          {.placeholder = "true|false"});
    visit("special_in_text", self.special_in_text,
          "treat added tokens inside a text as tokens or as plain characters",
          {.values = {"allow", "text"}});
    visit("on_bad_text", self.on_bad_text, "handling of lone surrogates and invalid UTF-8",
          {.values = {"error", "replace"}});
    visit("threads", self.threads, "number of threads; 0: all CPUs of this process",
          {.placeholder = "N", .least = 0, .most = kMaxThreads});
  }
};

struct DecodeConfig {
  std::string tokenizer;
  std::string input;
  std::string output;
  bool skip_special = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("tokenizer", self.tokenizer, kTokenizerPathHelp,
          {.placeholder = "DIR|FILE", .required = true});
    visit("input", self.input, "input file with one {\"ids\":[...]} per line",
          {.placeholder = "FILE", .required = true});
    visit("output", self.output, "output file with one {\"text\":...} per line, in the same order",
          {.placeholder = "FILE", .required = true});
    visit("skip_special", self.skip_special, "omit special tokens from the text");
  }
};

/// Counts the words of every text, learns merges and writes tokenizer.json and
/// tokenizer_config.json to config.output: a directory that is new, empty, or contains exactly
/// these files. The ranks split the counting; rank 0 learns. The files depend only on the texts,
/// not on threads or ranks. Invalid records are skipped with a warning. Collective over `world`
/// (null: this process alone). Throws Error(usage) for an invalid setting or an output directory
/// with other content; Error(data) like pack.
void train_tokenizer(const TrainTokenizerConfig& config, comm::Communicator* world = nullptr);

/// Reads "minimind", "none", or a JSON file with a list of tokens or of {"content", "special"}
/// objects. Throws Error(data) that describes the problem of the file.
std::vector<text::ReservedToken> read_special_tokens(const std::string& source);

/// Converts a text field of each line to {"ids":[...]}, in order. Throws Error(data) with
/// path:offset for the first line without such a text, because output lines must correspond to
/// input lines.
void encode_file(const EncodeConfig& config);

/// Converts lines {"ids":[...]} to {"text":...}, in order.
void decode_file(const DecodeConfig& config);

}  // namespace trireme::data_prep
