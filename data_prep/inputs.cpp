#include "data_prep/inputs.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"

namespace trireme {
namespace {

constexpr std::uint64_t kFingerprintBytes = 64 << 10;

std::string fingerprint(const std::filesystem::path& path, std::uint64_t size) {
  const Fd fd = open_read(path);
  Hasher hasher;
  std::vector<std::byte> bytes(std::min(size, kFingerprintBytes));
  for (const std::uint64_t offset : {std::uint64_t{0}, size - bytes.size()}) {
    read_all(fd.get(), bytes, offset, path);
    hasher.update(bytes);
  }
  return hasher.hex();
}

void check_supported(const std::filesystem::path& path) {
  constexpr std::array<std::string_view, 4> kCompressed{".gz", ".zst", ".xz", ".bz2"};
  const std::string extension = path.extension().string();
  if (std::find(kCompressed.begin(), kCompressed.end(), extension) != kCompressed.end()) {
    fail(ErrorKind::usage,
         "--input ",
         path.string(),
         ": compressed input is not read yet; unpack it to .jsonl first");
  }
  if (std::filesystem::is_directory(path)) {
    fail(ErrorKind::usage,
         "--input ",
         path.string(),
         " is a folder; give its files, for example ",
         path.string(),
         "/*.jsonl");
  }
}

std::filesystem::path common_folder(const std::vector<std::filesystem::path>& paths) {
  std::filesystem::path common = paths.front().parent_path();
  for (const std::filesystem::path& path : paths) {
    const std::filesystem::path folder = path.parent_path();
    const auto [mine, its] =
        std::mismatch(common.begin(), common.end(), folder.begin(), folder.end());
    static_cast<void>(its);
    std::filesystem::path shared;
    for (auto part = common.begin(); part != mine; ++part) shared /= *part;
    common = shared;
  }
  return common;
}

}  // namespace

std::vector<InputFile> inspect_inputs(const std::vector<std::string>& paths) {
  if (paths.empty()) fail(ErrorKind::usage, "--input names no file");
  std::vector<std::filesystem::path> absolute;
  std::set<std::filesystem::path> seen;
  for (const std::string& path : paths) {
    check_supported(path);
    std::error_code code;
    absolute.push_back(std::filesystem::canonical(path, code));
    if (code) fail(ErrorKind::data, "--input ", path, ": ", code.message());
    if (!seen.insert(absolute.back()).second)
      fail(ErrorKind::usage, "--input ", path, " is given twice");
  }
  const std::filesystem::path common = common_folder(absolute);
  std::vector<InputFile> files;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::uint64_t size = std::filesystem::file_size(absolute[i]);
    files.push_back({absolute[i],
                     absolute[i].lexically_relative(common).generic_string(),
                     size,
                     fingerprint(absolute[i], size)});
  }
  return files;
}

std::vector<std::vector<ByteRange>> plan_units(const std::vector<InputFile>& files,
                                               std::uint64_t unit_bytes) {
  std::vector<std::vector<ByteRange>> units(1);
  std::uint64_t room = unit_bytes;
  for (std::uint32_t file = 0; file < files.size(); ++file) {
    for (std::uint64_t begin = 0; begin < files[file].size;) {
      if (room == 0) {
        units.emplace_back();
        room = unit_bytes;
      }
      const std::uint64_t length = std::min(room, files[file].size - begin);
      units.back().push_back({file, begin, begin + length});
      begin += length;
      room -= length;
    }
  }
  return units;
}

std::vector<ByteRange> split_blocks(const std::vector<ByteRange>& ranges,
                                    std::uint64_t block_bytes) {
  std::vector<ByteRange> blocks;
  for (const ByteRange& range : ranges) {
    for (std::uint64_t begin = range.begin; begin < range.end; begin += block_bytes) {
      blocks.push_back({range.file, begin, std::min(range.end, begin + block_bytes)});
    }
  }
  return blocks;
}

}  // namespace trireme
