#include "checkpoint/reference/reference_scores.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/exchange/safetensors.hpp"
#include "checkpoint/exchange/whole_directory.hpp"
#include "comm/self/self_communicator.hpp"
#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/files/refusal.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"

namespace trireme::checkpoint {
namespace {

constexpr const char* kReferenceFormat = "trireme-reference";
constexpr std::int64_t kReferenceVersion = 2;
constexpr const char* kTableName = "reference.safetensors";
constexpr const char* kHeadName = "reference.json";
constexpr const char* kSelfHash = "self_hash";

/// Writes one member per line. The last member is the hash of all text before its line.
std::string sealed(const Json& head) {
  std::string text = head.dump(2);
  text.resize(text.size() - 2);  // "\n}"
  text += ",\n";
  return formatted("{}  \"{}\": \"{}\"\n}}\n", text, kSelfHash, xxh3_128_hex(text));
}

Json unsealed(const std::filesystem::path& path) {
  const std::string text = read_file(path, std::size_t{1} << 20);
  const std::size_t at = text.rfind(formatted("  \"{}\"", kSelfHash));
  Json head = parse_json(text, path.string());
  if (!head.is_object() || at == std::string::npos ||
      json_get<std::string>(head, kSelfHash, path.string()) != xxh3_128_hex(text.substr(0, at)))
    fail(ErrorKind::data, "{} is damaged: its hash differs", path.string());
  return head;
}

std::uint64_t file_bytes(const std::filesystem::path& path) {
  std::error_code code;
  const std::uint64_t bytes = std::filesystem::file_size(path, code);
  if (code) fail_to_read("read", path, code.value());
  return bytes;
}

using Shape = std::vector<std::int64_t>;

/// Concatenates one member of all sets.
template <class T>
std::vector<T> joined_rows(const std::vector<ReferenceSet>& sets,
                           std::vector<T> ReferenceSet::*member) {
  std::vector<T> rows;
  for (const ReferenceSet& set : sets)
    rows.insert(rows.end(), (set.*member).begin(), (set.*member).end());
  return rows;
}

template <class T>
SafetensorsSource tensor_of(const char* name, DType dtype, Shape shape,
                            const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {name, dtype, std::move(shape), [bytes](std::span<std::byte> into) {
            if (!bytes.empty()) std::memcpy(into.data(), bytes.data(), into.size());
          }};
}

template <class T>
std::vector<T> read_tensor(const SafetensorsFile& file, const std::string& name, DType dtype,
                           const Shape& shape, const std::filesystem::path& path) {
  const auto found = file.entries().find(name);
  if (found == file.entries().end() || found->second.dtype != dtype ||
      found->second.shape != shape) {
    fail(ErrorKind::data, "{}: '{}' must be {} of shape [{}]", path.string(), name,
         dtype_name(dtype), joined(shape, ", "));
  }
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  std::vector<T> values(static_cast<std::size_t>(count));
  file.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

/// Returns rows [first, first + count) of a tensor with `width` values per row.
template <class T>
std::vector<T> rows_of(const std::vector<T>& all, std::int64_t first, std::int64_t count,
                       std::int64_t width) {
  const auto begin = all.begin() + first * width;
  return {begin, begin + count * width};
}

/// The tensors of a table; the head contains the hash of their file.
struct Rows {
  std::int64_t count = 0;
  std::vector<double> sums;
  std::vector<std::int32_t> counts;
};

Rows read_rows(const SafetensorsFile& file, std::int64_t pairs, const std::filesystem::path& path) {
  return {pairs, read_tensor<double>(file, "sums", DType::f64, {pairs, 2}, path),
          read_tensor<std::int32_t>(file, "counts", DType::i32, {pairs, 2}, path)};
}

/// Reads version 1: the rows are the documents of one set, NaN for documents without a score.
std::vector<ReferenceSet> one_set(const Json& head, const SafetensorsFile& file,
                                  const std::filesystem::path& path, const std::string& where) {
  const Rows rows = read_rows(file, json_get<std::int64_t>(head, "num_pairs", where), path);
  ReferenceSet set{.name = "",
                   .content_xxh3 = json_get<std::string>(head, "set_xxh3_128", where),
                   .seq_len = json_get<std::int64_t>(head, "seq_len", where)};
  for (std::int64_t document = 0; document < rows.count; ++document) {
    const auto at = static_cast<std::size_t>(2 * document);
    if (std::isnan(rows.sums[at]) || std::isnan(rows.sums[at + 1])) continue;
    set.documents.push_back(document);
    set.sums.insert(set.sums.end(), {rows.sums[at], rows.sums[at + 1]});
    set.counts.insert(set.counts.end(), {rows.counts[at], rows.counts[at + 1]});
  }
  return {std::move(set)};
}

std::vector<ReferenceSet> all_sets(const Json& head, const SafetensorsFile& file,
                                   const std::filesystem::path& path, const std::string& where) {
  std::vector<ReferenceSet> sets;
  std::vector<std::int64_t> num_pairs;
  std::int64_t pairs = 0;
  const auto listed = head.find("sets");
  if (listed == head.end() || !listed->is_array())
    fail(ErrorKind::data, "{}: 'sets' must be a list", where);
  for (const Json& one : *listed) {
    sets.push_back({.name = json_get<std::string>(one, "name", where),
                    .content_xxh3 = json_get<std::string>(one, "content_xxh3", where),
                    .seq_len = json_get<std::int64_t>(one, "seq_len", where)});
    num_pairs.push_back(json_get<std::int64_t>(one, "num_pairs", where));
    pairs += num_pairs.back();
  }
  const Rows rows = read_rows(file, pairs, path);
  const auto documents = read_tensor<std::int64_t>(file, "documents", DType::i64, {pairs}, path);
  const auto keys = read_tensor<std::uint64_t>(file, "keys", DType::u64, {pairs}, path);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    sets[i].documents = rows_of(documents, first, num_pairs[i], 1);
    sets[i].keys = rows_of(keys, first, num_pairs[i], 1);
    sets[i].sums = rows_of(rows.sums, first, num_pairs[i], 2);
    sets[i].counts = rows_of(rows.counts, first, num_pairs[i], 2);
    first += num_pairs[i];
  }
  return sets;
}

}  // namespace

bool ReferenceSet::has(std::int64_t document) const {
  return std::binary_search(documents.begin(), documents.end(), document);
}

const ReferenceSet* ReferenceTable::find(const std::string& content_xxh3,
                                         std::int64_t seq_len) const {
  const auto found = std::find_if(sets.begin(), sets.end(), [&](const ReferenceSet& set) {
    return set.content_xxh3 == content_xxh3 && set.seq_len == seq_len;
  });
  return found == sets.end() ? nullptr : &*found;
}

void save_reference(const std::filesystem::path& directory, const ReferenceTable& table) {
  Json sets = Json::array();
  for (const ReferenceSet& set : table.sets) {
    const std::size_t pairs = set.documents.size();
    TRIREME_ASSERT(set.keys.size() == pairs && set.sums.size() == 2 * pairs &&
                   set.counts.size() == 2 * pairs);
    sets.push_back({{"name", set.name},
                    {"content_xxh3", set.content_xxh3},
                    {"seq_len", set.seq_len},
                    {"num_pairs", pairs}});
  }
  const auto sums = joined_rows(table.sets, &ReferenceSet::sums);
  const auto counts = joined_rows(table.sets, &ReferenceSet::counts);
  const auto documents = joined_rows(table.sets, &ReferenceSet::documents);
  const auto keys = joined_rows(table.sets, &ReferenceSet::keys);
  const auto pairs = static_cast<std::int64_t>(keys.size());
  comm::SelfCommunicator alone;
  write_whole_directory(directory, alone, [&](const std::filesystem::path& temporary) {
    const std::filesystem::path path = temporary / kTableName;
    const std::array tensors{tensor_of("sums", DType::f64, {pairs, 2}, sums),
                             tensor_of("counts", DType::i32, {pairs, 2}, counts),
                             tensor_of("documents", DType::i64, {pairs}, documents),
                             tensor_of("keys", DType::u64, {pairs}, keys)};
    write_safetensors(path, tensors, alone);
    const Json head = {{"format", kReferenceFormat},
                       {"version", kReferenceVersion},
                       {"weights_sha256", table.origin.weights_sha256},
                       {"precision", table.origin.precision},
                       {"score", table.origin.score},
                       {"sets", sets},
                       {"bytes", file_bytes(path)},
                       {"xxh3_128", hash_file(path)}};
    write_file_atomic(temporary / kHeadName, sealed(head));
  });
}

bool is_reference(const std::filesystem::path& directory) {
  std::error_code code;
  return std::filesystem::exists(directory / kHeadName, code);
}

ReferenceTable load_reference(const std::filesystem::path& directory) {
  const std::filesystem::path head_path = directory / kHeadName;
  const std::string where = head_path.string();
  const Json head = unsealed(head_path);
  const auto version = json_get<std::int64_t>(head, "version", where);
  if (json_get<std::string>(head, "format", where) != kReferenceFormat || version < 1 ||
      version > kReferenceVersion) {
    fail(ErrorKind::data, "{}: format {}, version {}; this program reads {}, versions 1 to {}",
         where, json_get<std::string>(head, "format", where), version, kReferenceFormat,
         kReferenceVersion);
  }
  const std::filesystem::path path = directory / kTableName;
  if (file_bytes(path) != json_get<std::uint64_t>(head, "bytes", where) ||
      hash_file(path) != json_get<std::string>(head, "xxh3_128", where)) {
    fail(ErrorKind::data, "{} is damaged: its hash differs from the hash in {}", path.string(),
         kHeadName);
  }
  const SafetensorsFile file = SafetensorsFile::open(path);
  ReferenceTable table;
  table.origin = {json_get<std::string>(head, "weights_sha256", where), head.value("precision", ""),
                  head.value("score", "all")};
  table.sets = version == 1 ? one_set(head, file, path, where) : all_sets(head, file, path, where);
  return table;
}

}  // namespace trireme::checkpoint
