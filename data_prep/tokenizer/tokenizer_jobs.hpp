#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "core/fields.hpp"
#include "data_prep/documents/jsonl_record.hpp"
#include "data_prep/progress.hpp"
#include "data_prep/tokenizer_place.hpp"
#include "data_prep/worker_pool.hpp"
#include "text/learn/bpe_trainer.hpp"
#include "text/split/splitter.hpp"

/// `trireme-data tokenizer train|encode|decode`: settings and jobs.
namespace trireme {

/// Returns the values that --pattern may have.
std::vector<std::string> split_pattern_names();
SplitStep split_pattern_named(const std::string& name);

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
    visit("input", self.inputs, "jsonl files", {.placeholder = "FILE...", .required = true});
    visit("output", self.output, "folder for tokenizer.json and tokenizer_config.json",
          {.placeholder = "DIR", .required = true});
    visit("vocab_size", self.vocab_size, "tokens, with the special ones and the 256 bytes",
          {.placeholder = "N", .least = 1, .most = kMostTokens});
    visit("field", self.field, "field that holds the text", {.placeholder = "NAME"});
    visit("pattern", self.pattern, "how texts are cut into words",
          {.values = split_pattern_names()});
    visit("unit", self.unit,
          "what is cut into words as a whole; line is what Hugging Face's train(files) does",
          {.values = {"text", "line"}});
    visit("min_frequency", self.min_frequency, "pairs that occur less often are not merged",
          {.placeholder = "N", .least = 0, .most = kMostTokens});
    visit("max_token_length", self.max_token_length,
          "learned tokens are shorter than N bytes (0: any length)",
          {.placeholder = "N", .least = 0, .most = kMostTokens});
    visit("alphabet", self.alphabet, "tokens of all 256 bytes, or of those that occur",
          {.values = {"bytes", "used"}});
    visit("limit_alphabet", self.limit_alphabet,
          "tokens of the N most frequent characters only (0: of all)",
          {.placeholder = "N", .least = 0, .most = kMostTokens});
    visit("special_tokens", self.special_tokens,
          "the 36 of MiniMind-3, none, or a JSON list of tokens or {\"content\", \"special\"}",
          {.placeholder = "minimind|none|FILE"});
    visit("special_in_text", self.special_in_text,
          "special tokens in the texts are plain text, or are cut out and learned as words of "
          "their own (as if added to the tokenizer before training)",
          {.values = {"text", "allow"}});
    visit("bos_token", self.bos_token, "special token that begins a text",
          {.placeholder = "TOKEN"});
    visit("eos_token", self.eos_token, "special token that ends a text", {.placeholder = "TOKEN"});
    visit("pad_token", self.pad_token, "special token that pads", {.placeholder = "TOKEN"});
    visit("unk_token", self.unk_token, "special token for what is unknown",
          {.placeholder = "TOKEN"});
    visit("on_bad_text", self.on_bad_text, "lone surrogates and invalid UTF-8",
          {.values = on_bad_text_names()});
    visit("threads", self.threads, "for counting, on each rank; 0: all processors at hand",
          {.placeholder = "N", .least = 0, .most = kMaxThreads});
    visit("progress", self.progress, "how progress is shown", {.values = progress_mode_names()});
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
    visit("tokenizer", self.tokenizer, kTokenizerPlaceHelp,
          {.placeholder = "DIR|FILE", .required = true});
    visit("input", self.input, "jsonl file", {.placeholder = "FILE", .required = true});
    visit("output", self.output, "one {\"ids\":[...]} a line, same order",
          {.placeholder = "FILE", .required = true});
    visit("field", self.field, "field that holds the text", {.placeholder = "NAME"});
    visit("add_special_tokens", self.add_special_tokens,
          "what the tokenizer's post-processor puts around a text", {.placeholder = "true|false"});
    visit("special_in_text", self.special_in_text,
          "added tokens inside a text: matched, or plain characters",
          {.values = {"allow", "text"}});
    visit("on_bad_text", self.on_bad_text, "lone surrogates and invalid UTF-8",
          {.values = {"error", "replace"}});
    visit("threads", self.threads, "0: all processors at hand",
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
    visit("tokenizer", self.tokenizer, kTokenizerPlaceHelp,
          {.placeholder = "DIR|FILE", .required = true});
    visit("input", self.input, "one {\"ids\":[...]} a line",
          {.placeholder = "FILE", .required = true});
    visit("output", self.output, "one {\"text\":...} a line, same order",
          {.placeholder = "FILE", .required = true});
    visit("skip_special", self.skip_special, "leave special tokens out of the text");
  }
};

/// Counts the pieces of every text, learns merges, writes tokenizer.json and tokenizer_config.json
/// to config.output: a folder that is new, empty, or holds just what training gives.
/// Collective over `world` (null: this process alone): its ranks share the counting,
/// rank 0 learns. The files depend on the texts alone, not on threads or ranks.
/// Bad lines are left out with a warning. Throws Error(usage) for a wrong setting, or an output
/// folder that holds something else; Error(data) as pack.
void train_tokenizer(const TrainTokenizerConfig& config, Communicator* world = nullptr);

/// "minimind", "none", or a JSON file with a list of tokens or of {"content", "special"} objects.
/// Throws Error(data) that names what is wrong with the file.
std::vector<ReservedToken> read_special_tokens(const std::string& source);

/// A text field of each line to {"ids":[...]}, in order. Throws Error(data) with path:offset for
/// the first line without such a text: lines must stay in step.
void encode_file(const EncodeConfig& config);

/// {"ids":[...]} lines to {"text":...}, in order.
void decode_file(const DecodeConfig& config);

}  // namespace trireme
