#include "checkpoint/exchange/resize_vocab.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "checkpoint/exchange/special_tokens.hpp"
#include "checkpoint/tokenizer/tokenizer_check.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::checkpoint {
namespace {

constexpr const char* kTokenizerFile = "tokenizer.json";

/// Returns the lines of the file without their line ends.
std::vector<std::string> read_tokens(const std::string& path) {
  std::vector<std::string> tokens;
  std::set<std::string> seen;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    const std::string where = formatted("--add-tokens {}, line {}", path, tokens.size() + 1);
    std::string repaired;
    text::append_lossy_utf8(line, repaired);
    if (repaired != line) fail(ErrorKind::data, "{}: the token is not valid UTF-8", where);
    if (line.empty())
      fail(ErrorKind::data, "{}: the token is empty. Each line must have one token", where);
    if (!seen.insert(line).second)
      fail(ErrorKind::data, "{}: the token '{}' is given twice", where, line);
    tokens.push_back(std::move(line));
  }
  if (tokens.empty()) fail(ErrorKind::data, "--add-tokens {}: the file has no token", path);
  return tokens;
}

/// Throws Error(data) if the tokenizer has the token already.
void check_new(const Json& tokenizer, const std::string& token, const std::string& path) {
  const Json model = tokenizer.value("model", Json::object());
  const Json vocab = model.value("vocab", Json::object());
  bool exists = vocab.is_object() && vocab.contains(token);
  for (const Json& piece : vocab.is_array() ? vocab : Json::array())  // Unigram: [text, score]
    exists = exists || (piece.is_array() && !piece.empty() && piece.front() == token);
  for (const Json& added : tokenizer.value("added_tokens", Json::array()))
    exists = exists || added.value("content", Json()) == token;
  if (exists)
    fail(ErrorKind::data, "--add-tokens {}: the tokenizer already has the token '{}'. Remove it",
         path, token);
}

/// Adds the tokens to tokenizer.json, with ids from `next_id` on.
void add_to_tokenizer(const std::string& path, std::int64_t next_id, ImportedModel& model) {
  const auto file = model.files.find(kTokenizerFile);
  if (file == model.files.end())
    fail(ErrorKind::data, "--add-tokens {}: {} has no tokenizer.json to which tokens can be added",
         path, model.where);
  Json tokenizer = parse_json(file->second, formatted("{}/{}", model.where, kTokenizerFile));
  Json& added = tokenizer["added_tokens"];
  if (!added.is_array()) added = Json::array();
  for (const std::string& token : read_tokens(path)) {
    check_new(tokenizer, token, path);
    added.push_back(Json{{"id", next_id++},
                         {"content", token},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", false}});
  }
  file->second = tokenizer.dump(2) + "\n";
}

/// Returns the tensor with `rows` rows. Rows from `known` on are the mean of the rows before.
WeightTensor resized(const std::string& name, const WeightTensor& tensor, std::int64_t rows,
                     std::int64_t known) {
  const auto width = static_cast<std::size_t>(tensor.shape[1]);
  const auto kept = static_cast<std::size_t>(known);
  return {DType::f32, {rows, tensor.shape[1]}, [=](std::span<std::byte> bytes) {
            const std::vector<std::byte> old = read_f32(tensor, name);
            std::vector<double> sum(width, 0.0);
            for (std::size_t row = 0; row < kept; ++row) {
              for (std::size_t i = 0; i < width; ++i) {
                float value = 0;
                std::memcpy(&value, &old[(row * width + i) * sizeof value], sizeof value);
                sum[i] += value;
              }
            }
            std::vector<float> mean(width);
            for (std::size_t i = 0; i < width; ++i)
              mean[i] = static_cast<float>(sum[i] / static_cast<double>(kept));
            const std::size_t row_bytes = width * sizeof(float);
            std::copy_n(old.begin(), kept * row_bytes, bytes.begin());
            for (std::size_t at = kept * row_bytes; at < bytes.size(); at += row_bytes)
              std::memcpy(&bytes[at], mean.data(), row_bytes);
          }};
}

}  // namespace

void change_vocab(const VocabChange& change, ImportedModel& model, WeightSource& weights) {
  if (!change.is_any()) return;
  model::ModelConfig& config = model.config;
  const std::int64_t known = num_token_ids(model.files, model.where);
  if (known == 0)
    fail(
        ErrorKind::data,
        "{} has no tokenizer, so it is not known which rows of the embedding have a token. Copy its "
        "tokenizer into the directory, or import without --add-tokens and --resize-vocab",
        model.where);
  check_tokenizer_fits(known, config, model.where);
  if (!change.add_tokens.empty()) {
    const bool was_readable = tokenizer_problem(model.files, model.where).empty();
    add_to_tokenizer(change.add_tokens, known, model);
    const std::string problem = tokenizer_problem(model.files, model.where);
    if (was_readable && !problem.empty())
      fail(
          ErrorKind::data,
          "{}\n--add-tokens {}: with these tokens, the tokenizer cannot be read. Add them with the "
          "tokenizers library, save the directory, and import it without --add-tokens.",
          problem, change.add_tokens);
  }
  const std::int64_t needed = num_token_ids(model.files, model.where);
  if (change.num_rows != 0 && change.num_rows < needed)
    fail(ErrorKind::usage,
         "--resize-vocab {} is too small. It must be at least {}, the number of token ids",
         change.num_rows, needed);
  const std::int64_t rows =
      change.num_rows != 0 ? change.num_rows : std::max(needed, config.vocab_size);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    const auto found = weights.find(name);
    if (found == weights.end()) continue;
    const std::vector<std::int64_t> expected{config.vocab_size, config.hidden_size};
    if (found->second.shape != expected) return;  // checked_tensors reports all wrong shapes
    found->second = resized(name, found->second, rows, known);
  }
  config.vocab_size = rows;
}

}  // namespace trireme::checkpoint
