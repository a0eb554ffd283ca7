#include "checkpoint/minimind/zip_file.hpp"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "core/error.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kDirectoryEntry = 0x02014b50;
constexpr std::uint32_t kDirectoryEnd = 0x06054b50;
constexpr std::uint32_t kDirectoryEnd64 = 0x06064b50;
constexpr std::uint32_t kDirectoryLocator64 = 0x07064b50;
constexpr std::uint64_t kEndBytes = 22;
constexpr std::uint64_t kLocatorBytes = 20;
constexpr std::uint64_t kEnd64Bytes = 56;
constexpr std::uint64_t kMostDirectoryBytes = std::uint64_t{1} << 28;
constexpr std::uint32_t kIn64 = 0xffffffff;  // the value is in the ZIP64 field

/// Returns the little-endian number at position `at`.
template <class T>
T number_at(std::span<const std::byte> bytes, std::size_t at) {
  T value{};
  if (at + sizeof value > bytes.size()) fail(ErrorKind::data, "its directory ends early");
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Reads the values that do not fit the directory entry from its ZIP64 field.
void read_zip64(std::span<const std::byte> extra, std::uint64_t& size, std::uint64_t& stored,
                std::uint64_t& header) {
  for (std::size_t at = 0; at + 4 <= extra.size();) {
    const std::size_t field = at + 4;
    const std::size_t length = number_at<std::uint16_t>(extra, at + 2);
    if (number_at<std::uint16_t>(extra, at) == 1) {
      std::size_t next = field;
      for (std::uint64_t* value : {&size, &stored, &header}) {
        if (*value != kIn64) continue;
        *value = number_at<std::uint64_t>(extra, next);
        next += 8;
      }
    }
    at = field + length;
  }
}

}  // namespace

ZipFile ZipFile::open(const std::filesystem::path& path) {
  ZipFile file;
  file.path_ = path;
  file.fd_ = open_read(path);

  struct stat info {};

  if (::fstat(file.fd_.get(), &info) != 0)
    fail(ErrorKind::data, "cannot get the size of {}", path.string());
  file.size_ = static_cast<std::uint64_t>(info.st_size);
  const std::uint64_t tail_bytes = std::min<std::uint64_t>(file.size_, kEndBytes + 0xffff);
  std::vector<std::byte> tail(tail_bytes);
  const std::uint64_t tail_begin = file.size_ - tail_bytes;
  read_all(file.fd_.get(), tail, tail_begin, path);
  std::size_t at = tail.size() < kEndBytes ? 0 : tail.size() - kEndBytes;
  while (at > 0 && number_at<std::uint32_t>(tail, at) != kDirectoryEnd) --at;
  if (tail.size() < kEndBytes || number_at<std::uint32_t>(tail, at) != kDirectoryEnd) {
    fail(ErrorKind::data,
         "{} is not a torch.save file (a ZIP archive since torch 1.6), or its end is missing; to "
         "convert an older file, load and save it with torch",
         path.string());
  }
  std::uint64_t count = number_at<std::uint16_t>(tail, at + 10);
  std::uint64_t bytes = number_at<std::uint32_t>(tail, at + 12);
  std::uint64_t begin = number_at<std::uint32_t>(tail, at + 16);
  if (at >= kLocatorBytes &&
      number_at<std::uint32_t>(tail, at - kLocatorBytes) == kDirectoryLocator64) {
    const auto end64 = number_at<std::uint64_t>(tail, at - kLocatorBytes + 8);
    if (end64 > file.size_ || file.size_ - end64 < kEnd64Bytes)
      fail(ErrorKind::data, "{}: its directory lies outside the file", path.string());
    std::vector<std::byte> record(kEnd64Bytes);
    read_all(file.fd_.get(), record, end64, path);
    if (number_at<std::uint32_t>(record, 0) != kDirectoryEnd64)
      fail(ErrorKind::data, "{}: its directory is damaged", path.string());
    count = number_at<std::uint64_t>(record, 32);
    bytes = number_at<std::uint64_t>(record, 40);
    begin = number_at<std::uint64_t>(record, 48);
  }
  file.read_directory(begin, bytes, count);
  return file;
}

void ZipFile::read_directory(std::uint64_t begin, std::uint64_t bytes, std::uint64_t count) {
  if (begin > size_ || bytes > size_ - begin || bytes > kMostDirectoryBytes)
    fail(ErrorKind::data, "{}: its directory lies outside the file", path_.string());
  std::vector<std::byte> directory(bytes);
  read_all(fd_.get(), directory, begin, path_);
  constexpr std::size_t kFixed = 46;
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (at + kFixed > directory.size() ||
        number_at<std::uint32_t>(directory, at) != kDirectoryEntry)
      fail(ErrorKind::data, "{}: its directory is damaged at record {}", path_.string(), i);
    const std::size_t name_bytes = number_at<std::uint16_t>(directory, at + 28);
    const std::size_t extra_bytes = number_at<std::uint16_t>(directory, at + 30);
    const std::size_t comment_bytes = number_at<std::uint16_t>(directory, at + 32);
    if (at + kFixed + name_bytes + extra_bytes + comment_bytes > directory.size())
      fail(ErrorKind::data, "{}: its directory is damaged at record {}", path_.string(), i);
    const std::string name(reinterpret_cast<const char*>(directory.data() + at + kFixed),
                           name_bytes);
    Record record;
    record.crc32 = number_at<std::uint32_t>(directory, at + 16);
    std::uint64_t stored = number_at<std::uint32_t>(directory, at + 20);
    record.bytes = number_at<std::uint32_t>(directory, at + 24);
    record.header = number_at<std::uint32_t>(directory, at + 42);
    read_zip64(std::span(directory).subspan(at + kFixed + name_bytes, extra_bytes), record.bytes,
               stored, record.header);
    if (number_at<std::uint16_t>(directory, at + 10) != 0 || stored != record.bytes)
      fail(ErrorKind::data, "{}: record '{}' is compressed, which torch.save never does",
           path_.string(), name.substr(0, 200));
    if (record.header > size_ || record.bytes > size_ - record.header)
      fail(ErrorKind::data, "{}: record '{}' lies outside the file", path_.string(),
           name.substr(0, 200));
    if (!records_.emplace(name, record).second)
      fail(ErrorKind::data, "{}: two records are named '{}'", path_.string(), name.substr(0, 200));
    at += kFixed + name_bytes + extra_bytes + comment_bytes;
  }
}

void ZipFile::read(const std::string& name, std::span<std::byte> bytes) const {
  const Record& record = records_.at(name);
  TRIREME_ASSERT(bytes.size() == record.bytes);
  std::array<std::byte, 30> header{};
  if (size_ - record.header < header.size())
    fail(ErrorKind::data, "{}: record '{}' lies outside the file", path_.string(), name);
  read_all(fd_.get(), header, record.header, path_);
  if (number_at<std::uint32_t>(header, 0) != kLocalHeader)
    fail(ErrorKind::data, "{}: record '{}' is damaged", path_.string(), name);
  const std::uint64_t begin = record.header + header.size() + number_at<std::uint16_t>(header, 26) +
                              number_at<std::uint16_t>(header, 28);
  if (begin > size_ || record.bytes > size_ - begin)
    fail(ErrorKind::data, "{}: record '{}' lies outside the file", path_.string(), name);
  read_all(fd_.get(), bytes, begin, path_);
  const auto* content = reinterpret_cast<const Bytef*>(bytes.data());
  if (::crc32_z(0, content, bytes.size()) != record.crc32)
    fail(ErrorKind::data, "{}: record '{}' is damaged (its checksum differs)", path_.string(),
         name);
}

}  // namespace trireme::checkpoint
