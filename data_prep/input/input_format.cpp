#include "data_prep/input/input_format.hpp"

#include <array>
#include <utility>

#include "core/error.hpp"

namespace trireme::data_prep {
namespace {

bool looks_like_json(std::string_view head) {
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && head[first] == '{';
}

void refuse_known_formats(const std::filesystem::path& path, std::string_view head) {
  using namespace std::string_view_literals;
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kOthers{
      {{"\xFD\x37zXZ\0"sv, "xz"sv},
       {"BZh"sv, "bzip2"sv},
       {"\x04\x22\x4D\x18"sv, "lz4"sv},
       {"PK\x03\x04"sv, "zip"sv},
       {"PAR1"sv, "Parquet"sv}}};
  for (const auto& [magic, name] : kOthers) {
    if (head.starts_with(magic)) {
      fail(
          ErrorKind::data,
          "--input {} is {}, must be jsonl or a JSON array, plain or as .gz or .zst; unpack it, or compress it again with zstd",
          path.string(), name);
    }
  }
}

}  // namespace

std::span<const InputFormat> input_formats() {
  static const std::array rows{
      json_lines(Compression::none),
      json_lines(Compression::gzip),
      json_lines(Compression::zstd),
  };
  return rows;
}

const InputFormat& detect_format(const std::filesystem::path& path, std::string_view head) {
  const InputFormat& plain = input_formats().front();
  if (head.empty()) return plain;  // an empty stream, whatever its name
  for (const InputFormat& format : input_formats()) {
    if (format.recognises != nullptr && format.recognises(head)) return format;
  }
  refuse_known_formats(path, head);
  const std::string extension = path.extension().string();
  if ((extension == ".gz" || extension == ".zst") && !looks_like_json(head)) {
    fail(
        ErrorKind::data,
        "{} is named {}, but begins neither like gzip or zstd nor like a line of JSON: truncated or damaged at byte 0",
        path.string(), extension);
  }
  return plain;
}

std::string byte_location(std::string_view file, std::uint64_t position) {
  return formatted("{}, byte {}", file, position);
}

std::string record_location(const InputFile& file, std::uint64_t position) {
  return formatted("{}, {} {}", file.path.string(), file.format->position, position);
}

}  // namespace trireme::data_prep
