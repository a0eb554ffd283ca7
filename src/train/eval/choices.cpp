#include "train/eval/choices.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numbers>
#include <numeric>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::train {
namespace {

constexpr std::size_t kMaxChoiceBytes = std::size_t{1} << 30;
constexpr const char* kChoiceForm = "{\"ctx\": \"...\", \"endings\": [\"...\", ...], \"label\": 0}";

/// Returns true for the characters that Python's str.rstrip removes.
bool is_python_space(std::uint32_t c) {
  constexpr std::array<std::uint32_t, 9> kSingle{0x20,   0x85,   0xA0,   0x1680, 0x2028,
                                                 0x2029, 0x202F, 0x205F, 0x3000};
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F) || (c >= 0x2000 && c <= 0x200A) ||
         std::find(kSingle.begin(), kSingle.end(), c) != kSingle.end();
}

/// Returns the number of bytes before trailing white space. `text` is valid UTF-8.
std::size_t length_without_spaces(std::string_view text) {
  std::size_t end = 0;
  std::size_t length = 0;
  for (std::size_t at = 0; at < text.size(); at += length)
    if (!is_python_space(text::utf8_decode(text.data() + at, length))) end = at + length;
  return end;
}

std::int64_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

std::int64_t index_of_largest(const std::vector<double>& values) {
  return std::max_element(values.begin(), values.end()) - values.begin();
}

ChoiceItem choice_item(const Json& record, const std::string& where) {
  if (!record.is_object())
    fail(ErrorKind::data, "{} is {}, must be {}", where, record.type_name(), kChoiceForm);
  ChoiceItem item{json_get<std::string>(record, "ctx", where),
                  {},
                  json_get<std::int64_t>(record, "label", where),
                  where};
  const auto endings = record.find("endings");
  if (endings == record.end() || !endings->is_array() || endings->empty())
    fail(ErrorKind::data, "{}: 'endings' must be a list of one text or more", where);
  for (const Json& one : *endings) {
    if (!one.is_string() || one.get_ref<const std::string&>().empty())
      fail(ErrorKind::data, "{}: each of 'endings' must be a text that is not empty", where);
    item.endings.push_back(one.get<std::string>());
  }
  if (item.label < 0 || item.label >= std::ssize(item.endings)) {
    fail(ErrorKind::data, "{}: label {}, must be in [0, {}): the number of the right ending", where,
         item.label, item.endings.size());
  }
  return item;
}

}  // namespace

std::vector<ChoiceItem> read_choices(const std::filesystem::path& file) {
  const std::string content = read_text(file, kMaxChoiceBytes);
  std::vector<ChoiceItem> items;
  for_each_json_line(content, file.string(), [&](const Json& record, const std::string& where) {
    items.push_back(choice_item(record, where));
  });
  if (items.empty())
    fail(ErrorKind::data, "{} holds no item; each line must be {}", file.string(), kChoiceForm);
  return items;
}

ContextAndEnding encode_pair(const text::Tokenizer& tokenizer, std::uint32_t prefix,
                             std::string_view context, std::string_view ending,
                             std::string_view where) {
  const text::EncodeOptions plain{.add_special_tokens = false};
  text::check_utf8(context, where);
  const std::size_t kept = length_without_spaces(context);
  const std::string moved = std::string(context.substr(kept)) + std::string(ending);
  const std::string before(context.substr(0, kept));
  ContextAndEnding pair;
  if (before.empty()) {
    pair = {{prefix}, tokenizer.encode(moved, plain)};
  } else {
    pair.context = tokenizer.encode(before, plain);
    const std::vector<std::uint32_t> whole = tokenizer.encode(before + moved, plain);
    const std::size_t cut = std::min(pair.context.size(), whole.size());
    pair.ending.assign(whole.begin() + static_cast<std::ptrdiff_t>(cut), whole.end());
  }
  if (pair.ending.empty()) {
    fail(
        ErrorKind::data,
        "{}: the tokenizer joins the ending '{}' with its context, so no token of the ending is left to score",
        where, ending);
  }
  return pair;
}

std::uint32_t prefix_id(const text::Tokenizer& tokenizer) {
  if (const auto bos = tokenizer.bos_id()) return *bos;
  if (const auto eos = tokenizer.eos_id()) return *eos;
  fail(
      ErrorKind::data,
      "the tokenizer has no bos_token and no eos_token: an ending without context needs one before "
      "it");
}

data::Batch batch_of_endings(std::span<const ContextAndEnding> texts, std::int64_t max_length) {
  data::Batch batch;
  batch.B = 1;
  batch.segment_bounds.push_back(0);
  for (const auto& [context, ending] : texts) {
    if (std::ssize(ending) > max_length) {
      fail(ErrorKind::data,
           "an ending has {} tokens, but the model accepts at most {} (model.max_seq_len)",
           ending.size(), max_length);
    }
    std::vector<std::uint32_t> ids = context;
    ids.insert(ids.end(), ending.begin(), ending.end());
    const auto size = std::ssize(ids);
    const auto first = std::max<std::int64_t>(0, size - max_length - 1);
    for (std::int64_t at = first; at + 1 < size; ++at) {
      const bool scored = at + 1 >= std::ssize(context);
      batch.tokens.push_back(ids[static_cast<std::size_t>(at)]);
      batch.targets.push_back(scored
                                  ? static_cast<std::int64_t>(ids[static_cast<std::size_t>(at + 1)])
                                  : data::kIgnoreTarget);
      batch.positions.push_back(at - first);
    }
    batch.num_targets += std::ssize(ending);
    batch.segment_bounds.push_back(static_cast<std::int32_t>(batch.tokens.size()));
  }
  batch.T = std::ssize(batch.tokens);
  batch.sample_indices = {0};
  batch.update_targets = batch.num_targets;
  return batch;
}

std::vector<double> sums_of_endings(std::span<const ContextAndEnding> texts,
                                    std::span<const double> log_probs) {
  std::vector<double> sums;
  for (const auto& [context, ending] : texts) {
    TRIREME_ASSERT(log_probs.size() >= ending.size());
    sums.push_back(std::accumulate(log_probs.begin(), log_probs.begin() + std::ssize(ending), 0.0));
    log_probs = log_probs.subspan(ending.size());
  }
  TRIREME_ASSERT(log_probs.empty());
  return sums;
}

ChoiceResult choose(const ChoiceItem& item, std::vector<double> scores) {
  TRIREME_ASSERT(scores.size() == item.endings.size());
  std::vector<double> per_character;
  for (std::size_t i = 0; i < scores.size(); ++i)
    per_character.push_back(scores[i] / static_cast<double>(characters(item.endings[i])));
  const std::int64_t choice = index_of_largest(scores);
  return {std::move(scores), choice, index_of_largest(per_character)};
}

std::vector<std::int64_t> bytes_of_tokens(const text::Tokenizer& tokenizer) {
  std::vector<std::int64_t> bytes(tokenizer.vocab_size());
  for (std::uint32_t id = 0; id < bytes.size(); ++id)
    bytes[id] = tokenizer.is_special(id) ? 0 : std::ssize(tokenizer.token_bytes(id));
  return bytes;
}

double bits_per_byte(double loss_sum, double bytes) {
  return loss_sum / (bytes * std::numbers::ln2);
}

}  // namespace trireme::train
