#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "config/check_options.hpp"
#include "core/error.hpp"
#include "core/files/directories.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "data_prep/tokenizer/count_words.hpp"
#include "data_prep/tokenizer/tokenizer_jobs.hpp"

namespace trireme::data_prep {
namespace {

constexpr std::array kPatterns{text::SplitStep::gpt2,   text::SplitStep::llama3,
                               text::SplitStep::qwen2,  text::SplitStep::qwen35,
                               text::SplitStep::cl100k, text::SplitStep::o200k,
                               text::SplitStep::tekken};

/// Checks before the work that the directory can hold the result. With null `files`, only refuses
/// foreign files.
void check_output(const std::filesystem::path& directory,
                  const std::map<std::string, std::string>* files) {
  std::error_code code;  // a directory that cannot be read is refused later
  if (!std::filesystem::exists(directory, code)) return;
  if (!std::filesystem::is_directory(directory, code))
    fail(ErrorKind::usage, "--output {} is a file; give a directory", directory.string());
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const bool named = name == "tokenizer.json" || name == "tokenizer_config.json";
    const bool same =
        named &&
        (files == nullptr || (files->contains(name) && read_file(entry.path()) == files->at(name)));
    if (!same) {
      fail(ErrorKind::usage,
           "--output {} contains {}'{}', which is not overwritten; use another directory",
           directory.string(), named ? "another " : "", name);
    }
  }
}

/// Checks the size before the long counting. train_bpe alone would give more tokens than requested,
/// like Hugging Face does.
void check_vocab_size(const text::BpeTrainOptions& options) {
  const std::uint64_t fewest = text::fewest_tokens(options);
  if (options.vocab_size >= fewest) return;
  fail(ErrorKind::usage, "--vocab-size {}, must be at least {}: the special tokens{}",
       options.vocab_size, fewest,
       options.all_bytes && !options.limit_alphabet ? " and the 256 bytes" : "");
}

std::string why_fewer(const text::BpeTrainOptions& options) {
  std::string pairs = "no pair is left to merge";
  std::string change;
  if (options.min_frequency > 1) {
    pairs += formatted(" that occurs {} times", options.min_frequency);
    change += ", a smaller --min-frequency";
  }
  if (options.max_token_length) {
    pairs += formatted(" to less than {} bytes", *options.max_token_length);
    change += ", a larger --max-token-length";
  }
  return formatted("{}; give more text{} or a smaller --vocab-size", pairs, change);
}

/// Warns about results that users of other trainers may not expect.
void explain(const text::BpeTrainOptions& options, const text::BpeTrainReport& report) {
  if (report.vocab_size > options.vocab_size) {
    log::warn(formatted(
        "the tokenizer has {} tokens, more than --vocab-size {}: the special tokens and the alphabet already have that many",
        report.vocab_size, options.vocab_size));
  } else if (report.vocab_size < options.vocab_size) {
    log::warn(formatted("the tokenizer has {} of the {} tokens of --vocab-size: {}",
                        report.vocab_size, options.vocab_size, why_fewer(options)));
  }
  if (report.max_pair_count > text::kMaxPairCountOfHuggingFace) {
    log::warn(formatted(
        "a pair occurs {} times; the Hugging Face trainer counts only to 2147483647, so its merges would differ",
        report.max_pair_count));
  }
  if (!options.all_bytes || options.limit_alphabet) {
    log::warn(
        "with --alphabet used or --limit-alphabet some bytes may have no token: such a tokenizer "
        "drops text in other programs, and encode and pack refuse it");
  }
}

std::optional<std::uint32_t> unless_zero(std::int64_t limit) {
  return limit == 0 ? std::nullopt : std::optional(static_cast<std::uint32_t>(limit));
}

/// Uses the roles of MiniMind with the tokens of MiniMind, else none. Options override them.
void set_roles(const TrainTokenizerConfig& config, text::BpeTrainOptions& options) {
  if (config.special_tokens != "minimind")
    options.bos_token = options.eos_token = options.pad_token = options.unk_token = "";
  for (const auto& [given, role] : {std::pair(&config.bos_token, &options.bos_token),
                                    {&config.eos_token, &options.eos_token},
                                    {&config.pad_token, &options.pad_token},
                                    {&config.unk_token, &options.unk_token}}) {
    if (!given->empty()) *role = *given;
  }
}

text::BpeTrainOptions train_options(const TrainTokenizerConfig& config) {
  text::BpeTrainOptions options;
  options.vocab_size = static_cast<std::uint32_t>(config.vocab_size);
  options.min_frequency = static_cast<std::uint32_t>(config.min_frequency);
  options.max_token_length = unless_zero(config.max_token_length);
  options.limit_alphabet = unless_zero(config.limit_alphabet);
  options.all_bytes = config.alphabet == "bytes";
  options.reserved = read_special_tokens(config.special_tokens);
  set_roles(config, options);
  return options;
}

void write(const std::filesystem::path& directory,
           const std::map<std::string, std::string>& files) {
  check_output(directory, &files);
  make_directories(directory);
  for (const auto& [name, content] : files) write_file_atomic(directory / name, content);
}

}  // namespace

std::vector<std::string> split_pattern_names() {
  std::vector<std::string> names;
  for (const text::SplitStep step : kPatterns) names.emplace_back(name_of(step));
  return names;
}

text::SplitStep split_pattern_named(const std::string& name) {
  for (const text::SplitStep step : kPatterns) {
    if (name == name_of(step)) return step;
  }
  fail(ErrorKind::internal, "no split pattern {}", name);
}

void train_tokenizer(const TrainTokenizerConfig& config, comm::Communicator* world) {
  config::throw_if_wrong(config);
  const text::BpeTrainOptions options = train_options(config);
  text::check_train_options(options);
  check_vocab_size(options);
  const bool first = world == nullptr || world->rank() == 0;
  if (first) check_output(config.output, nullptr);
  const Timer count_timer;
  const text::WordCounter words = count_words(config, options.reserved, world);
  if (!first) return;
  log::info(formatted("{} different words, counted in {}; learning merges", words.size(),
                      format_duration(count_timer.seconds())));
  const Timer timer;
  text::BpeTrainReport report;
  const std::map<std::string, std::string> files = text::train_bpe(words, options, &report);
  explain(options, report);
  write(config.output, files);
  log::info(formatted("tokenizer of {} tokens in {}, merges took {}", report.vocab_size,
                      config.output, format_duration(timer.seconds())));
}

std::vector<text::ReservedToken> read_special_tokens(const std::string& source) {
  if (source == "minimind") return text::minimind_reserved_tokens();
  if (source == "none") return {};
  const Json list = read_json(source);
  const auto refuse = [&source](const std::string& what) {
    fail(
        ErrorKind::data,
        "--special-tokens {}: {}; the file is a list of tokens or of {{\"content\": ..., \"special\": true|false}}",
        source, what);
  };
  if (!list.is_array()) refuse("not a list");
  std::vector<text::ReservedToken> tokens;
  for (const Json& entry : list) {
    const std::string place = formatted("entry {}", tokens.size());
    if (entry.is_string()) {
      tokens.push_back({entry.get<std::string>()});
      continue;
    }
    if (!entry.is_object() || !entry.contains("content") || !entry["content"].is_string())
      refuse(place + " is not a token");
    for (const auto& [key, value] : entry.items()) {
      if (key == "special" && !value.is_boolean()) refuse(place + ": special is not true or false");
      if (key != "content" && key != "special") refuse(place + " has an unknown key '" + key + "'");
    }
    tokens.push_back({entry["content"].get<std::string>(), entry.value("special", true)});
  }
  return tokens;
}

}  // namespace trireme::data_prep
