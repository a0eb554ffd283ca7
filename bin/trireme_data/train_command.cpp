#include <memory>

#include "bin/trireme_data/commands.hpp"
#include "core/error.hpp"
#include "data_prep/tokenizer/tokenizer_jobs.hpp"

namespace trireme {
namespace {

struct Options {
  TrainTokenizerConfig config;
  std::int64_t vocab_size = 6400;
  std::int64_t min_frequency = 0;
  std::int64_t max_token_length = 0;
  std::int64_t limit_alphabet = 0;
  std::string alphabet = "bytes";
  std::string special_tokens = "minimind";
  std::string bos, eos, pad, unk;
  std::string special_in_text = "text";
  std::string pattern = "gpt2";
  std::string unit = "text";
  std::string on_bad_text = "error";
  std::string progress = "auto";
};

std::uint32_t number(const char* option, std::int64_t value, std::int64_t least) {
  if (value < least || value > INT32_MAX)
    fail(ErrorKind::usage, "{} {}, must be in [{}, 2147483647]", option, value, least);
  return static_cast<std::uint32_t>(value);
}

void check_choice(const char* option, const std::string& value, const char* a, const char* b) {
  if (value != a && value != b)
    fail(ErrorKind::usage, "{} {}, must be {} or {}", option, value, a, b);
}

SplitStep parse_pattern(const std::string& name) {
  std::string known;
  for (const SplitStep step :
       {SplitStep::gpt2, SplitStep::llama3, SplitStep::qwen2, SplitStep::qwen35, SplitStep::cl100k,
        SplitStep::o200k, SplitStep::tekken}) {
    if (name == name_of(step)) return step;
    known.append(known.empty() ? "" : ", ").append(name_of(step));
  }
  fail(ErrorKind::usage, "--pattern {}, must be one of {}", name, known);
}

/// MiniMind's roles with MiniMind's tokens, else none; what is given wins.
void set_roles(const Options& options, BpeTrainOptions& bpe) {
  if (options.special_tokens != "minimind")
    bpe.bos_token = bpe.eos_token = bpe.pad_token = bpe.unk_token = "";
  for (const auto& [given, role] : {std::pair(&options.bos, &bpe.bos_token),
                                    {&options.eos, &bpe.eos_token},
                                    {&options.pad, &bpe.pad_token},
                                    {&options.unk, &bpe.unk_token}}) {
    if (!given->empty()) *role = *given;
  }
}

TrainTokenizerConfig resolve(const Options& options) {
  TrainTokenizerConfig config = options.config;
  BpeTrainOptions& bpe = config.bpe;
  check_choice("--unit", options.unit, "text", "line");
  check_choice("--alphabet", options.alphabet, "bytes", "used");
  check_choice("--special-in-text", options.special_in_text, "text", "allow");
  bpe.vocab_size = number("--vocab-size", options.vocab_size, 1);
  bpe.min_frequency = number("--min-frequency", options.min_frequency, 0);
  if (number("--max-token-length", options.max_token_length, 0) != 0)
    bpe.max_token_length = static_cast<std::uint32_t>(options.max_token_length);
  if (number("--limit-alphabet", options.limit_alphabet, 0) != 0)
    bpe.limit_alphabet = static_cast<std::uint32_t>(options.limit_alphabet);
  bpe.all_bytes = options.alphabet == "bytes";
  bpe.reserved = read_special_tokens(options.special_tokens);
  set_roles(options, bpe);
  config.pattern = parse_pattern(options.pattern);
  config.cut_special = options.special_in_text == "allow";
  config.by_lines = options.unit == "line";
  config.on_bad_text = parse_on_bad_text(options.on_bad_text);
  config.progress = parse_progress_mode(options.progress);
  return config;
}

void declare_limits(Command& command, Options& options) {
  command
      .option("--min-frequency", &options.min_frequency, "N",
              "pairs that occur less often are not merged")
      .option("--max-token-length", &options.max_token_length, "N",
              "learned tokens are shorter than N bytes (0: any length)")
      .option("--alphabet", &options.alphabet, "bytes|used",
              "tokens of all 256 bytes, or of those that occur")
      .option("--limit-alphabet", &options.limit_alphabet, "N",
              "tokens of the N most frequent characters only (0: of all)");
}

void declare_special(Command& command, Options& options) {
  command
      .option("--special-tokens", &options.special_tokens, "minimind|none|FILE",
              "the 36 of MiniMind-3, none, or a JSON list of tokens or {\"content\", \"special\"}")
      .option("--special-in-text", &options.special_in_text, "text|allow",
              "special tokens in the texts are plain text, or are cut out and learned as words of "
              "their own (as if added to the tokenizer before training)")
      .option("--bos-token", &options.bos, "TOKEN", "special token that begins a text")
      .option("--eos-token", &options.eos, "TOKEN", "special token that ends a text")
      .option("--pad-token", &options.pad, "TOKEN", "special token that pads")
      .option("--unk-token", &options.unk, "TOKEN", "special token for what is unknown");
}

}  // namespace

void add_train_command(CommandLine& commands, const DataProgram& program) {
  const auto options = std::make_shared<Options>();
  Command& command =
      commands.command("tokenizer train", "learn a byte-level BPE tokenizer from jsonl");
  command.option("--input", &options->config.inputs, "FILE...", "jsonl files", Need::required)
      .option("--output", &options->config.output, "DIR",
              "folder for tokenizer.json and tokenizer_config.json", Need::required)
      .option("--vocab-size", &options->vocab_size, "N",
              "tokens, with the special ones and the 256 bytes")
      .option("--field", &options->config.field, "NAME", "field that holds the text")
      .option("--pattern", &options->pattern, "gpt2|llama3|qwen2|qwen3.5|cl100k|o200k|tekken",
              "how texts are cut into words")
      .option("--unit", &options->unit, "text|line",
              "what is cut into words as a whole; line is what Hugging Face's train(files) does");
  declare_limits(command, *options);
  declare_special(command, *options);
  command
      .option("--on-bad-text", &options->on_bad_text, "error|skip|replace",
              "lone surrogates and invalid UTF-8")
      .option("--threads", &options->config.threads, "N",
              "for counting, on each rank; 0: all processors at hand")
      .option("--progress", &options->progress, "auto|bar|log|none", "how progress is shown")
      .example("trireme-data tokenizer train --input corpus.jsonl --vocab-size 6400 --output tok")
      .run([options, &program] {
        train_tokenizer(resolve(*options), &program.world());
        return kExitDone;
      });
}

}  // namespace trireme
