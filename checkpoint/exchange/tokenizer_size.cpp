#include "checkpoint/exchange/tokenizer_size.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/number.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kMostIds = std::int64_t{1} << 40;  // limit for ids of a damaged file

SortedJson parse(const std::map<std::string, std::string>& files, const char* name,
                 const std::string& where) {
  const auto found = files.find(name);
  return found == files.end() ? SortedJson()
                              : parse_sorted_json(found->second, formatted("{}/{}", where, name));
}

SortedJson member(const SortedJson& object, const char* key) {
  return object.is_object() && object.contains(key) ? object.at(key) : SortedJson();
}

std::int64_t past(const SortedJson& id) {
  if (!id.is_number_unsigned()) return 0;
  return static_cast<std::int64_t>(std::min<std::uint64_t>(id.get<std::uint64_t>(), kMostIds)) + 1;
}

}  // namespace

std::int64_t num_token_ids(const std::map<std::string, std::string>& files,
                           const std::string& where) {
  std::int64_t count = 0;
  const SortedJson tokenizer = parse(files, "tokenizer.json", where);
  const SortedJson vocab = member(member(tokenizer, "model"), "vocab");
  if (vocab.is_array())
    count = static_cast<std::int64_t>(vocab.size());  // Unigram: the position is the id
  if (vocab.is_object()) {
    for (const SortedJson& id : vocab) count = std::max(count, past(id));
  }
  for (const SortedJson& token : member(tokenizer, "added_tokens"))
    count = std::max(count, past(member(token, "id")));
  const SortedJson added =
      member(parse(files, "tokenizer_config.json", where), "added_tokens_decoder");
  if (added.is_object()) {
    for (const auto& [id, token] : added.items()) {
      if (const auto number = parse_integer(id))
        count = std::max(count, std::min(*number, kMostIds) + 1);
    }
  }
  return count;
}

void check_tokenizer_fits(std::int64_t num_ids, const ModelConfig& config, std::string_view where) {
  if (num_ids <= config.vocab_size) return;
  fail(
      ErrorKind::data,
      "{}: the tokenizer has {} ids (added tokens included), but the embedding has only {} rows: the tokenizer belongs to another model, or the weights were not resized to it",
      where, num_ids, config.vocab_size);
}

}  // namespace trireme
