#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "core/files/file.hpp"

namespace trireme::checkpoint {

/// Reads a ZIP archive of stored (not compressed) records, as written by torch.save, including
/// archives over 4 GiB (ZIP64). Checks that every position lies in the file before reading. Throws
/// Error(data) naming file and record. Source: PKWARE APPNOTE 6.3.10.
class ZipFile {
 public:
  struct Record {
    std::uint64_t header = 0;  // position of the local header
    std::uint64_t bytes = 0;
    std::uint32_t crc32 = 0;
  };

  static ZipFile open(const std::filesystem::path& path);

  [[nodiscard]] const std::map<std::string, Record>& records() const noexcept { return records_; }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Reads a record and verifies its checksum; bytes.size() must equal the record size.
  void read(const std::string& name, std::span<std::byte> bytes) const;

 private:
  void read_directory(std::uint64_t begin, std::uint64_t bytes, std::uint64_t count);

  std::filesystem::path path_;
  Fd fd_;
  std::uint64_t size_ = 0;
  std::map<std::string, Record> records_;
};

}  // namespace trireme::checkpoint
