#include "data_prep/input/input_format.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.hpp"

namespace trireme::data_prep {
// The other rows, in the files of their names.
InputFormat parquet_format();

namespace {

/// Returns true if the first character is that of a JSON object.
bool looks_like_json(std::string_view head) {
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && head[first] == '{';
}

void refuse_known_formats(const std::filesystem::path& path, std::string_view head) {
  using namespace std::string_view_literals;
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOthers{
      {{"\xFD\x37zXZ\0"sv, "xz"sv},
       {"BZh"sv, "bzip2"sv},
       {"\x04\x22\x4D\x18"sv, "lz4"sv},
       {"PK\x03\x04"sv, "zip"sv}}};
  for (const auto& [magic, name] : kOthers) {
    if (head.starts_with(magic)) {
      fail(ErrorKind::data,
           "--input {} is {}, must be {}; unpack it, or compress it again with zstd", path.string(),
           name, input_format_names());
    }
  }
  if (head.starts_with("ARROW1") || head.starts_with("\xFF\xFF\xFF\xFF")) {
    fail(
        ErrorKind::data,
        "--input {} is an Arrow IPC file. Write its table as Parquet (pyarrow.parquet.write_table), or as JSON lines",
        path.string());
  }
}

/// Returns true if the first line is "{" and the second line begins with a key.
bool is_indented_object(std::string_view head) {
  constexpr std::string_view kSpaces = " \t\r";
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  const std::size_t brace = head.find_first_not_of(" \t\r\n");
  if (brace == std::string_view::npos || head[brace] != '{') return false;
  const std::size_t newline = head.find_first_not_of(kSpaces, brace + 1);
  if (newline == std::string_view::npos || head[newline] != '\n') return false;
  const std::size_t key = head.find_first_not_of(" \t\r\n", newline + 1);
  return key != std::string_view::npos && head[key] == '"';
}

void refuse_texts_of_other_forms(const std::filesystem::path& path, std::string_view head) {
  if (is_indented_object(head)) {
    fail(
        ErrorKind::data,
        "--input {} has a JSON object over several lines. Each record must be one line, or an element of one JSON array: jq -c . FILE > FILE.jsonl writes one line for each object",
        path.string());
  }
  const std::string extension = path.extension().string();
  if ((extension == ".csv" || extension == ".tsv") && !looks_like_json(head)) {
    fail(
        ErrorKind::data,
        "--input {} is a {} file, must be {}. Convert it, for example with Python: pandas.read_csv(FILE).to_json(OUT, orient='records', lines=True)",
        path.string(), extension.substr(1), input_format_names());
  }
}

}  // namespace

std::span<const InputFormat> input_formats() {
  static const std::array rows{
      json_lines(Compression::none),
      json_lines(Compression::gzip),
      json_lines(Compression::zstd),
      parquet_format(),
  };
  return rows;
}

const char* input_format_names() {
  return "jsonl or a JSON array (plain, .gz or .zst), or Parquet";
}

const char* input_help() {
  static const std::string help =
      cat("files, directories or patterns, in order: ", input_format_names());
  return help.c_str();
}

const InputFormat* binary_format(std::string_view head) {
  const auto rows = input_formats();
  const auto found = std::ranges::find_if(rows, [&](const InputFormat& format) {
    return format.compression == Compression::none && format.recognises != nullptr &&
           format.recognises(head);
  });
  return found == rows.end() ? nullptr : &*found;
}

const InputFormat& detect_format(const std::filesystem::path& path, std::string_view head) {
  const InputFormat& plain = input_formats().front();
  if (head.empty()) return plain;  // an empty stream, whatever its name
  for (const InputFormat& format : input_formats()) {
    if (format.recognises != nullptr && format.recognises(head)) return format;
  }
  refuse_known_formats(path, head);
  refuse_texts_of_other_forms(path, head);
  const std::string extension = path.extension().string();
  if ((extension == ".gz" || extension == ".zst") && !looks_like_json(head)) {
    fail(
        ErrorKind::data,
        "{} is named {}, but begins neither like gzip or zstd nor like a line of JSON: truncated or damaged at byte 0",
        path.string(), extension);
  }
  return plain;
}

std::string record_location(std::string_view file, std::string_view word, std::uint64_t position) {
  return formatted("{}, {} {}", file, word, position);
}

std::string record_location(const InputFile& file, std::uint64_t position) {
  return record_location(file.path.string(), file.format->position, position);
}

}  // namespace trireme::data_prep
