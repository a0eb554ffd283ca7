#include "checkpoint/format/manifest.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/format/cover.hpp"
#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/hash/crc32c.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kFormat = "trireme-checkpoint";
constexpr std::string_view kSelfHashKey = "\"self_hash\": \"";
constexpr std::string_view kSelfHashEnd = "\"\n}\n";
constexpr std::size_t kHashDigits = 32;
constexpr std::size_t kHeadBytes = 100;  // contain the name of the format
constexpr std::int64_t kMaxStep = 999'999'999;
constexpr std::size_t kMaxSlices = std::size_t{1} << 24;
// A parsed value takes up to 50 bytes, so a hostile text can take about 3 GB. The limit allows
// about five million slices.
constexpr std::ptrdiff_t kMaxValues = 60'000'000;

Json file_json(const SavedFile& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.hash}};
}

Json slice_json(const SavedSlice& slice) {
  return {{"shard", slice.shard},
          {"dataset", slice.dataset},
          {"at", slice.at},
          {"offset", slice.part.offset},
          {"extent", slice.part.extent},
          {"flat", {slice.part.flat_begin, slice.part.flat_end}},
          {slice.hash.size() == kHashDigits ? "xxh3_128" : "crc32c", slice.hash}};
}

Json tensor_json(const std::string& name, const SavedTensor& tensor) {
  Json slices = Json::array();
  for (const SavedSlice& slice : tensor.slices) slices.push_back(slice_json(slice));
  return {{"name", name},
          {"dtype", dtype_name(tensor.dtype)},
          {"shape", tensor.shape},
          {"slices", slices}};
}

/// Writes one entry per line, so that plain tools can read and compare manifests.
template <class Items, class ToJson>
void append_list(std::string& text, const char* key, const Items& items, const ToJson& to_json) {
  const std::string lines =
      joined(items, ",", [&](const auto& item) { return formatted("\n{}", to_json(item).dump()); });
  text += formatted("\"{}\": [{}],\n", key, lines);
}

/// Returns the text without the self hash and the closing brace.
std::string body_text(const CheckpointManifest& manifest) {
  std::string text =
      formatted("{{\n\"format\": \"{}\",\n\"version\": {},\n", kFormat, kCheckpointVersion);
  text +=
      formatted("\"run_id\": {},\n\"step\": {},\n", Json(manifest.run_id).dump(), manifest.step);
  text += formatted("\"values\": {},\n", Json(manifest.values).dump());
  append_list(text, "files", manifest.files, file_json);
  append_list(text, "shards", manifest.shards, file_json);
  append_list(text, "tensors", manifest.tensors,
              [](const auto& item) { return tensor_json(item.first, item.second); });
  return text;
}

const Json& member(const Json& object, const char* key, Json::value_t type,
                   std::string_view where) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end() || found->type() != type) {
    fail(ErrorKind::data, "{}: key '{}' is missing or of the wrong type", where, key);
  }
  return *found;
}

std::vector<std::int64_t> integers(const Json& object, const char* key, std::string_view where) {
  std::vector<std::int64_t> values;
  for (const Json& item : member(object, key, Json::value_t::array, where)) {
    if (!item.is_number_integer() ||
        (item.is_number_unsigned() && item.get<std::uint64_t>() > INT64_MAX)) {
      fail(ErrorKind::data, "{}: '{}' holds {}, expected integers", where, key, item.dump());
    }
    values.push_back(item.get<std::int64_t>());
  }
  return values;
}

std::string hash_member(const Json& object, const char* key, std::size_t digits,
                        std::string_view where) {
  const std::string hash = json_get<std::string>(object, key, where);
  const bool good =
      hash.size() == digits && hash.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!good)
    fail(ErrorKind::data, "{}: {} = '{}', must be {} lower-case hexadecimal digits", where, key,
         hash, digits);
  return hash;
}

std::vector<SavedFile> parse_files(const Json& root, const char* key, std::string_view where) {
  std::vector<SavedFile> files;
  for (const Json& item : member(root, key, Json::value_t::array, where)) {
    SavedFile file{json_get<std::string>(item, "name", where),
                   json_get<std::uint64_t>(item, "bytes", where),
                   hash_member(item, "xxh3_128", kHashDigits, where)};
    if (!is_plain_name(file.name) || file.name == kManifestName) {
      fail(ErrorKind::data, "{}: file name '{}' is not allowed", where, file.name);
    }
    if (file.bytes > INT64_MAX)
      fail(ErrorKind::data, "{}: {} claims {} bytes", where, file.name, file.bytes);
    files.push_back(std::move(file));
  }
  return files;
}

SavedSlice parse_slice(const Json& item, std::string_view where) {
  SavedSlice slice;
  slice.shard = json_get<std::uint64_t>(item, "shard", where);
  slice.dataset = json_get<std::string>(item, "dataset", where);
  slice.at = json_get<std::uint64_t>(item, "at", where);
  slice.part.offset = integers(item, "offset", where);
  slice.part.extent = integers(item, "extent", where);
  const std::vector<std::int64_t> flat = integers(item, "flat", where);
  if (flat.size() != 2) fail(ErrorKind::data, "{}: 'flat' must have two numbers", where);
  slice.part.flat_begin = flat[0];
  slice.part.flat_end = flat[1];
  slice.hash = item.contains("crc32c") ? hash_member(item, "crc32c", kChecksumDigits, where)
                                       : hash_member(item, "xxh3_128", kHashDigits, where);
  return slice;
}

CheckpointManifest from_json(const Json& root, std::string_view where) {
  const std::string format = json_get<std::string>(root, "format", where);
  const std::uint64_t version = json_get<std::uint64_t>(root, "version", where);
  if (format != kFormat)
    fail(ErrorKind::data, "{}: format '{}', expected '{}'", where, format, kFormat);
  if (version != kCheckpointVersion) {
    fail(ErrorKind::data, "{}: checkpoint format version {}, this program reads {}", where, version,
         kCheckpointVersion);
  }
  CheckpointManifest manifest;
  manifest.run_id = json_get<std::string>(root, "run_id", where);
  manifest.step = json_get<std::int64_t>(root, "step", where);
  for (const auto& [key, value] : member(root, "values", Json::value_t::object, where).items()) {
    if (!value.is_string()) fail(ErrorKind::data, "{}: value '{}' is not text", where, key);
    manifest.values[key] = value.get<std::string>();
  }
  manifest.files = parse_files(root, "files", where);
  manifest.shards = parse_files(root, "shards", where);
  for (const Json& item : member(root, "tensors", Json::value_t::array, where)) {
    const std::string name = json_get<std::string>(item, "name", where);
    const std::string place = formatted("{}: tensor {}", where, name);
    SavedTensor tensor;
    const auto dtype = dtype_from_name(json_get<std::string>(item, "dtype", place));
    if (!dtype) fail(ErrorKind::data, "{}: unknown dtype {}", place, item.at("dtype").dump());
    tensor.dtype = *dtype;
    tensor.shape = integers(item, "shape", place);
    for (const Json& slice : member(item, "slices", Json::value_t::array, place)) {
      tensor.slices.push_back(parse_slice(slice, place));
    }
    if (!manifest.tensors.emplace(name, std::move(tensor)).second)
      fail(ErrorKind::data, "{} is listed twice", place);
  }
  return manifest;
}

/// Checks the sizes of an untrusted manifest, so that later arithmetic cannot overflow.
void check_tensor_bounds(const CheckpointManifest& manifest, const std::string& name,
                         const SavedTensor& tensor, std::string_view where) {
  const std::string place = formatted("{}: tensor {}", where, name);
  if (!is_tensor_name(name)) fail(ErrorKind::data, "{}: the name is not allowed", place);
  if (tensor.shape.size() > 8)
    fail(ErrorKind::data, "{}: {} dimensions, at most 8", place, tensor.shape.size());
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.shape) {
    if (size < 0 || (size > 0 && count > (std::int64_t{1} << 56) / size))
      fail(ErrorKind::data, "{}: impossible shape", place);
    count *= size;
  }
  for (const SavedSlice& slice : tensor.slices) {
    const parallel::Slice& part = slice.part;
    const bool good = lies_inside(tensor.shape, part) && part.flat_begin < part.flat_end;
    if (!good) fail(ErrorKind::data, "{}: a slice lies outside the tensor", place);
    if (slice.shard >= manifest.shards.size())
      fail(ErrorKind::data, "{}: there is no shard {}", place, slice.shard);
    const std::uint64_t bytes = static_cast<std::uint64_t>(part.count()) * size_of(tensor.dtype);
    const std::uint64_t limit = manifest.shards[slice.shard].bytes;
    if (slice.at > limit || bytes > limit - slice.at) {
      fail(ErrorKind::data, "{}: a slice lies outside {}", place,
           manifest.shards[slice.shard].name);
    }
  }
}

}  // namespace

std::int64_t SavedTensor::count() const noexcept {
  return parallel::Slice::whole(shape).count();
}

std::string manifest_text(const CheckpointManifest& manifest) {
  std::string text = body_text(manifest);
  const std::string hash = xxh3_128_hex(text);
  return text.append(kSelfHashKey).append(hash).append(kSelfHashEnd);
}

std::string manifest_part_text(const CheckpointManifest& part) {
  return body_text(part) + "\"part\": true\n}\n";
}

CheckpointManifest parse_manifest_part(std::string_view text, std::string_view where) {
  return from_json(parse_json(text, where), where);
}

std::string size_problem(std::string_view text) {
  if (text.size() > kMaxManifestBytes)
    return formatted("{} bytes, at most {} are allowed", text.size(), kMaxManifestBytes);
  const auto num_values = std::count_if(text.begin(), text.end(),
                                        [](char c) { return c == ',' || c == '[' || c == '{'; });
  if (num_values <= kMaxValues) return "";
  return formatted("about {} values, at most {} are allowed", num_values, kMaxValues);
}

CheckpointManifest parse_manifest(std::string_view text, std::string_view where) {
  const std::size_t tail = kSelfHashKey.size() + kHashDigits + kSelfHashEnd.size();
  const bool ends = text.size() > tail && text.ends_with(kSelfHashEnd) &&
                    text.substr(text.size() - tail, kSelfHashKey.size()) == kSelfHashKey;
  if (text.substr(0, kHeadBytes).find("\"trireme-tokens\"") != std::string_view::npos)
    fail(ErrorKind::data, "{} belongs to a token set, a checkpoint is required", where);
  if (!ends) fail(ErrorKind::data, "{}: incomplete or damaged (no self hash at its end)", where);
  const std::string_view body = text.substr(0, text.size() - tail);
  const std::string_view stored =
      text.substr(text.size() - tail + kSelfHashKey.size(), kHashDigits);
  const std::string computed = xxh3_128_hex(body);
  if (computed != stored)
    fail(ErrorKind::data, "{}: damaged: its hash is {}, expected {}", where, computed, stored);
  if (const std::string problem = size_problem(text); !problem.empty())
    fail(ErrorKind::data, "{}: {}", where, problem);
  CheckpointManifest manifest = from_json(parse_json(text, where), where);
  check_manifest(manifest, where);
  return manifest;
}

void check_manifest(const CheckpointManifest& manifest, std::string_view where) {
  if (!is_plain_name(manifest.run_id))
    fail(ErrorKind::data, "{}: run id '{}' is not allowed", where, manifest.run_id);
  if (manifest.step < 0 || manifest.step > kMaxStep)
    fail(ErrorKind::data, "{}: step {} is not allowed", where, manifest.step);
  std::vector<std::string> names;
  for (const auto* list : {&manifest.files, &manifest.shards}) {
    for (const SavedFile& file : *list) names.push_back(file.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(ErrorKind::data, "{}: file {} is listed twice", where, *twice);
  std::size_t num_slices = 0;
  std::string problems;
  for (const auto& [name, tensor] : manifest.tensors) {
    num_slices += tensor.slices.size();
    if (num_slices > kMaxSlices)
      fail(ErrorKind::data, "{}: more than {} slices", where, kMaxSlices);
    check_tensor_bounds(manifest, name, tensor, where);
    std::vector<parallel::Slice> parts;
    for (const SavedSlice& slice : tensor.slices) parts.push_back(slice.part);
    const std::string problem = cover_problem(tensor.shape, parts);
    if (!problem.empty()) problems += formatted("\n  {}: {}", name, problem);
  }
  if (!problems.empty())
    fail(ErrorKind::data, "{}: elements of tensors are missing or stored twice:{}", where,
         problems);
}

void merge_manifest(CheckpointManifest& whole, const CheckpointManifest& part) {
  const std::uint64_t base = whole.shards.size();
  whole.shards.insert(whole.shards.end(), part.shards.begin(), part.shards.end());
  for (const auto& [name, tensor] : part.tensors) {
    const auto [found, added] =
        whole.tensors.try_emplace(name, SavedTensor{tensor.dtype, tensor.shape, {}});
    SavedTensor& target = found->second;
    if (!added && (target.dtype != tensor.dtype || target.shape != tensor.shape)) {
      fail(ErrorKind::internal, "ranks disagree on dtype or shape of tensor {}", name);
    }
    for (SavedSlice slice : tensor.slices) {
      slice.shard += base;
      target.slices.push_back(std::move(slice));
    }
  }
}

bool is_plain_name(std::string_view name) noexcept {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  return !name.empty() && name.size() <= 128 && name.front() != '.' &&
         name.find_first_not_of(kAllowed) == std::string::npos;
}

bool is_tensor_name(std::string_view name) noexcept {
  if (name.size() > 256) return false;
  while (true) {
    const std::size_t slash = name.find('/');
    if (!is_plain_name(name.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

std::string step_directory_name(std::int64_t step) {
  if (step < 0 || step > kMaxStep)
    fail(ErrorKind::usage, "step {}, must be in [0, {}]", step, kMaxStep);
  char name[32];
  std::snprintf(name, sizeof name, "step-%09lld", static_cast<long long>(step));
  return name;
}

std::int64_t step_of_directory_name(std::string_view name) noexcept {
  constexpr std::string_view kPrefix = "step-";
  if (name.size() != kPrefix.size() + 9 || !name.starts_with(kPrefix)) return -1;
  std::int64_t step = 0;
  for (const char c : name.substr(kPrefix.size())) {
    if (c < '0' || c > '9') return -1;
    step = step * 10 + (c - '0');
  }
  return step;
}

}  // namespace trireme::checkpoint
