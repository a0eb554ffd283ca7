#include "checkpoint/reference/reference_scores.hpp"

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "checkpoint/hf/safetensors.hpp"
#include "checkpoint/hf/whole_folder.hpp"
#include "comm/self/self_communicator.hpp"
#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/files/refusal.hpp"
#include "core/hash/xxh3.hpp"

namespace trireme {
namespace {

constexpr const char* kReferenceFormat = "trireme-reference";
constexpr std::int64_t kReferenceVersion = 1;
constexpr const char* kTableName = "reference.safetensors";
constexpr const char* kHeadName = "reference.json";
constexpr const char* kSelfHash = "self_hash";

/// One member a line, the last is the hash of all that is before its line.
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
    fail(ErrorKind::data, "{} is damaged: it is not as it was written", path.string());
  return head;
}

std::uint64_t file_bytes(const std::filesystem::path& path) {
  std::error_code code;
  const std::uint64_t bytes = std::filesystem::file_size(path, code);
  if (code) fail_to_read("read", path, code.value());
  return bytes;
}

template <class T>
SafetensorsSource table_of(const char* name, DType dtype, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {
      name,
      dtype,
      {static_cast<std::int64_t>(values.size() / 2), 2},
      [bytes](std::span<std::byte> into) { std::memcpy(into.data(), bytes.data(), into.size()); }};
}

template <class T>
std::vector<T> read_table(const SafetensorsFile& file, const std::string& name, DType dtype,
                          std::int64_t pairs, const std::filesystem::path& path) {
  const auto found = file.entries().find(name);
  if (found == file.entries().end() || found->second.dtype != dtype ||
      found->second.shape != std::vector<std::int64_t>{pairs, 2}) {
    fail(ErrorKind::data, "{}: '{}' must be {} of shape [{}, 2]", path.string(), name,
         dtype_name(dtype), pairs);
  }
  std::vector<T> values(static_cast<std::size_t>(2 * pairs));
  file.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

[[noreturn]] void refuse(const std::filesystem::path& folder, std::string_view what,
                         const auto& theirs, const auto& ours) {
  fail(
      ErrorKind::usage,
      "dpo.reference = {}: made with {} {}, this run has {}; make it anew with trireme dpo-reference",
      folder.string(), what, theirs, ours);
}

/// Whatever the weights that it is of.
ReferenceTable load_of_data(const std::filesystem::path& folder, const ReferenceOrigin& expected) {
  const std::filesystem::path head_path = folder / kHeadName;
  const std::string where = head_path.string();
  const Json head = unsealed(head_path);
  if (json_get<std::string>(head, "format", where) != kReferenceFormat ||
      json_get<std::int64_t>(head, "version", where) != kReferenceVersion) {
    fail(ErrorKind::data, "{}: format {}, version {}; this program reads {} {}", where,
         json_get<std::string>(head, "format", where),
         json_get<std::int64_t>(head, "version", where), kReferenceFormat, kReferenceVersion);
  }
  ReferenceTable table;
  table.origin = {json_get<std::string>(head, "set_xxh3_128", where),
                  json_get<std::int64_t>(head, "seq_len", where),
                  json_get<std::string>(head, "weights_sha256", where),
                  head.value("precision", "")};
  if (table.origin.set_xxh3_128 != expected.set_xxh3_128) {
    refuse(folder, "a token set of content hash", table.origin.set_xxh3_128, expected.set_xxh3_128);
  }
  if (table.origin.seq_len != expected.seq_len)
    refuse(folder, "train.seq_len", table.origin.seq_len, expected.seq_len);
  const std::filesystem::path path = folder / kTableName;
  if (file_bytes(path) != json_get<std::uint64_t>(head, "bytes", where) ||
      hash_file(path) != json_get<std::string>(head, "xxh3_128", where)) {
    fail(ErrorKind::data, "{} is damaged: its content is not that which {} has the hash of",
         path.string(), kHeadName);
  }
  const auto pairs = json_get<std::int64_t>(head, "num_pairs", where);
  const SafetensorsFile file = SafetensorsFile::open(path);
  table.sums = read_table<double>(file, "sums", DType::f64, pairs, path);
  table.counts = read_table<std::int32_t>(file, "counts", DType::i32, pairs, path);
  return table;
}

}  // namespace

void save_reference(const std::filesystem::path& folder, const ReferenceTable& table) {
  TRIREME_ASSERT(table.sums.size() == table.counts.size() && table.sums.size() % 2 == 0);
  SelfCommunicator alone;
  write_whole_folder(folder, alone, [&](const std::filesystem::path& temporary) {
    const std::filesystem::path path = temporary / kTableName;
    const std::array tensors{table_of("sums", DType::f64, table.sums),
                             table_of("counts", DType::i32, table.counts)};
    write_safetensors(path, tensors, alone);
    const Json head = {{"format", kReferenceFormat},
                       {"version", kReferenceVersion},
                       {"set_xxh3_128", table.origin.set_xxh3_128},
                       {"seq_len", table.origin.seq_len},
                       {"weights_sha256", table.origin.weights_sha256},
                       {"precision", table.origin.precision},
                       {"num_pairs", table.sums.size() / 2},
                       {"bytes", file_bytes(path)},
                       {"xxh3_128", hash_file(path)}};
    write_file_atomic(temporary / kHeadName, sealed(head));
  });
}

bool is_reference(const std::filesystem::path& folder) {
  std::error_code code;
  return std::filesystem::exists(folder / kHeadName, code);
}

ReferenceTable load_reference(const std::filesystem::path& folder,
                              const ReferenceOrigin& expected) {
  return load_of_data(folder, expected);
}

void check_reference(const std::filesystem::path& folder, const ReferenceOrigin& expected) {
  (void)load_of_data(folder, expected);
}

}  // namespace trireme
