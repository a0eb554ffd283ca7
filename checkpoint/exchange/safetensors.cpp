#include "checkpoint/exchange/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "checkpoint/format/manifest.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/files/refusal.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::uint64_t kMaxHeader = 100'000'000;

struct DTypeName {
  std::string_view name;
  DType dtype;
};

constexpr std::array<DTypeName, 12> kNames{{{"F64", DType::f64},
                                            {"F32", DType::f32},
                                            {"BF16", DType::bf16},
                                            {"F16", DType::f16},
                                            {"I64", DType::i64},
                                            {"I32", DType::i32},
                                            {"I16", DType::i16},
                                            {"I8", DType::i8},
                                            {"U64", DType::u64},
                                            {"U32", DType::u32},
                                            {"U16", DType::u16},
                                            {"U8", DType::u8}}};

std::string_view name_of(DType dtype) {
  return std::find_if(kNames.begin(), kNames.end(),
                      [&](const DTypeName& row) { return row.dtype == dtype; })
      ->name;
}

std::uint64_t unsigned_item(const Json& item, const std::string& where) {
  if (!item.is_number_unsigned())
    fail(ErrorKind::data, "{}: {} is not a size", where, item.dump().substr(0, 40));
  return item.get<std::uint64_t>();
}

const Json& array_member(const Json& object, const char* key, const std::string& where) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_array())
    fail(ErrorKind::data, "{}: '{}' is not a list", where, key);
  return *found;
}

SafetensorsEntry parse_entry(const Json& item, std::uint64_t data_bytes, const std::string& where) {
  SafetensorsEntry entry;
  const std::string dtype = json_get<std::string>(item, "dtype", where);
  const auto row = std::find_if(kNames.begin(), kNames.end(),
                                [&](const DTypeName& r) { return r.name == dtype; });
  if (row == kNames.end())
    fail(ErrorKind::data, "{}: dtype '{}' is not supported", where, dtype.substr(0, 40));
  entry.dtype = row->dtype;
  std::uint64_t bytes = size_of(entry.dtype);
  bool empty = false;
  for (const Json& one : array_member(item, "shape", where)) {
    const std::uint64_t size = unsigned_item(one, where);
    if (size > INT64_MAX) fail(ErrorKind::data, "{}: impossible shape", where);
    entry.shape.push_back(static_cast<std::int64_t>(size));
    empty = empty || size == 0;
    if (!empty && bytes > data_bytes / size)
      fail(ErrorKind::data, "{}: its shape needs more bytes than the file has", where);
    bytes = empty ? 0 : bytes * size;
  }
  const Json& range = array_member(item, "data_offsets", where);
  if (range.size() != 2) fail(ErrorKind::data, "{}: 'data_offsets' must have two numbers", where);
  entry.begin = unsigned_item(range[0], where);
  entry.end = unsigned_item(range[1], where);
  if (entry.begin > entry.end || entry.end > data_bytes)
    fail(ErrorKind::data, "{} lies outside the file", where);
  if (entry.end - entry.begin != bytes) {
    fail(ErrorKind::data, "{}: {} bytes, its shape needs {}", where, entry.end - entry.begin,
         bytes);
  }
  return entry;
}

/// Throws Error(data) unless the tensors fill the data exactly, one after another.
void check_exact_cover(const std::map<std::string, SafetensorsEntry>& entries,
                       std::uint64_t data_bytes, const std::string& where) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const auto& [name, entry] : entries) ranges.emplace_back(entry.begin, entry.end);
  std::sort(ranges.begin(), ranges.end());
  std::uint64_t at = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != at)
      fail(ErrorKind::data, "{}: tensors {} at byte {}", where,
           begin < at ? "overlap" : "leave a gap", begin);
    at = end;
  }
  if (at != data_bytes)
    fail(ErrorKind::data, "{}: {} bytes at its end belong to no tensor", where, data_bytes - at);
}

std::uint64_t bytes_of(const SafetensorsSource& tensor) {
  std::uint64_t bytes = size_of(tensor.dtype);
  for (const std::int64_t size : tensor.shape) bytes *= static_cast<std::uint64_t>(size);
  return bytes;
}

std::string header_text(std::span<const SafetensorsSource> tensors) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};  // some readers refuse files without it
  std::uint64_t at = 0;
  for (const SafetensorsSource& tensor : tensors) {
    const std::uint64_t end = at + bytes_of(tensor);
    header[tensor.name] = {
        {"dtype", name_of(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

/// Ranks on several nodes may write one file. They must not share a page of a network file system.
constexpr std::uint64_t kStretchAlign = std::uint64_t{1} << 20;

struct FileStretch {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// Writes the part of `bytes` (at file position `at`) that lies in the range.
void write_part(int fd, std::span<const std::byte> bytes, std::uint64_t at, FileStretch stretch,
                const std::filesystem::path& path) {
  const std::uint64_t begin = std::max(at, stretch.begin);
  const std::uint64_t end = std::min(at + bytes.size(), stretch.end);
  if (begin < end) write_all(fd, bytes.subspan(begin - at, end - begin), begin, path);
}

/// Writes one range of an existing file of full size.
void write_stretch(const std::filesystem::path& path, const std::string& header,
                   std::span<const SafetensorsSource> tensors, FileStretch stretch) {
  if (stretch.begin == stretch.end) return;
  Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) fail_to_write("open", path, errno);
  const std::uint64_t length = header.size();
  write_part(fd.get(), std::as_bytes(std::span(&length, 1)), 0, stretch, path);
  write_part(fd.get(), std::as_bytes(std::span(header)), 8, stretch, path);
  std::uint64_t at = 8 + length;
  std::vector<std::byte> bytes;
  for (const SafetensorsSource& tensor : tensors) {
    const std::uint64_t size = bytes_of(tensor);
    if (at < stretch.end && at + size > stretch.begin) {
      bytes.resize(size);
      tensor.fill(bytes);
      write_part(fd.get(), bytes, at, stretch, path);
    }
    at += size;
  }
  sync_file(fd.get(), path);
  if (::close(fd.release()) != 0) fail_to_write("close", path, errno);
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.fd_ = open_read(path);

  struct stat info {};

  if (::fstat(file.fd_.get(), &info) != 0 || !S_ISREG(info.st_mode))
    fail(ErrorKind::data, "{} is not a regular file", path.string());
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size < 8)
    fail(ErrorKind::data, "{}: {} bytes are too few for a safetensors file", path.string(), size);
  std::uint64_t length = 0;
  read_all(file.fd_.get(), std::as_writable_bytes(std::span(&length, 1)), 0, path);
  if (length > kMaxHeader || length > size - 8) {
    fail(ErrorKind::data,
         "{}: the header has {} bytes, but the file has {} and at most {} are allowed",
         path.string(), length, size, kMaxHeader);
  }
  std::string text(length, '\0');
  read_all(file.fd_.get(), std::as_writable_bytes(std::span(text)), 8, path);
  const Json header = parse_json(text, path.string());
  if (!header.is_object()) fail(ErrorKind::data, "{}: its header is not an object", path.string());
  file.data_begin_ = 8 + length;
  const std::uint64_t data_bytes = size - file.data_begin_;
  for (const auto& [name, item] : header.items()) {
    if (name == "__metadata__") continue;
    file.entries_[name] = parse_entry(
        item, data_bytes, formatted("{}: tensor '{}'", path.string(), name.substr(0, 200)));
  }
  check_exact_cover(file.entries_, data_bytes, path.string());
  return file;
}

void SafetensorsFile::read(const std::string& name, std::span<std::byte> bytes) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) fail(ErrorKind::data, "{} holds no tensor {}", path_.string(), name);
  TRIREME_ASSERT(bytes.size() == found->second.end - found->second.begin);
  read_all(fd_.get(), bytes, data_begin_ + found->second.begin, path_);
}

void write_safetensors(const std::filesystem::path& path,
                       std::span<const SafetensorsSource> tensors, comm::Communicator& world) {
  const std::string header = header_text(tensors);
  std::uint64_t size = 8 + header.size();
  for (const SafetensorsSource& tensor : tensors) size += bytes_of(tensor);
  comm::on_first_rank(world, [&] {
    const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd) fail_to_write("create", path, errno);
    if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) fail_to_write("write", path, errno);
  });
  const auto ranks = static_cast<std::size_t>(world.size());
  const std::vector<std::uint64_t> equal(ranks);
  comm::distribute_work(world, equal, [&](std::size_t part) {
    const auto border = [&](std::size_t at) {
      return at == ranks ? size : size / ranks * at / kStretchAlign * kStretchAlign;
    };
    write_stretch(path, header, tensors, {border(part), border(part + 1)});
    return std::string();
  });
}

void write_safetensors_directory(const std::filesystem::path& directory,
                                 std::span<const SafetensorsSource> tensors,
                                 comm::Communicator& world, std::uint64_t max_bytes) {
  std::vector<std::span<const SafetensorsSource>> groups;
  std::uint64_t total = 0;
  std::size_t begin = 0;
  std::uint64_t group_bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t bytes = bytes_of(tensors[i]);
    if (i > begin && group_bytes + bytes > max_bytes) {
      groups.push_back(tensors.subspan(begin, i - begin));
      begin = i;
      group_bytes = 0;
    }
    group_bytes += bytes;
    total += bytes;
  }
  groups.push_back(tensors.subspan(begin));
  if (groups.size() == 1) return write_safetensors(directory / "model.safetensors", tensors, world);
  Json weight_map = Json::object();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, groups.size());
    write_safetensors(directory / name, groups[i], world);
    for (const SafetensorsSource& tensor : groups[i]) weight_map[tensor.name] = name;
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  comm::on_first_rank(world, [&] {
    write_file_atomic(directory / "model.safetensors.index.json", index.dump(2) + "\n");
  });
}

std::map<std::string, std::shared_ptr<const SafetensorsFile>> open_safetensors_directory(
    const std::filesystem::path& directory) {
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> tensors;
  const auto add_file = [&](const std::string& name) {
    auto file = std::make_shared<const SafetensorsFile>(SafetensorsFile::open(directory / name));
    for (const auto& [tensor, entry] : file->entries()) {
      if (!tensors.emplace(tensor, file).second)
        fail(ErrorKind::data, "{}: tensor {} is in two files", directory.string(), tensor);
    }
  };
  const std::filesystem::path index_path = directory / "model.safetensors.index.json";
  if (!std::filesystem::exists(index_path)) {
    if (!std::filesystem::exists(directory / "model.safetensors")) {
      fail(ErrorKind::data, "{} holds neither model.safetensors nor model.safetensors.index.json",
           directory.string());
    }
    add_file("model.safetensors");
    return tensors;
  }
  const Json index = read_json(index_path);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object())
    fail(ErrorKind::data, "{}: no 'weight_map'", index_path.string());
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>())) {
      fail(ErrorKind::data, "{}: tensor {} is in a file with an invalid name", index_path.string(),
           tensor);
    }
    files.insert(file.get<std::string>());
  }
  constexpr const char* kWhole = "model.safetensors";
  if (std::filesystem::exists(directory / kWhole) && files != std::set<std::string>{kWhole}) {
    fail(
        ErrorKind::data,
        "{} holds {} and {}, which names other files: remove the one that is not the model's (transformers reads {})",
        directory.string(), kWhole, index_path.filename().string(), kWhole);
  }
  for (const std::string& file : files) add_file(file);
  for (const auto& [tensor, file] : map->items()) {
    if (!tensors.contains(tensor))
      fail(ErrorKind::data, "{}: tensor {} is not in {}", index_path.string(), tensor,
           file.get<std::string>());
  }
  if (tensors.size() != map->size())
    fail(ErrorKind::data, "{}: the files contain tensors that the index does not name",
         index_path.string());
  return tensors;
}

}  // namespace trireme::checkpoint
