#include "data_prep/input/json_array.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>

#include "core/error.hpp"
#include "data_prep/input/byte_source.hpp"

namespace trireme {
namespace {

constexpr std::uint64_t kPieceBytes = 4096;

std::unique_ptr<ByteSource> open_source(const InputFile& file) {
  if (file.compression == Compression::none) return std::make_unique<FileSource>(file);
  return std::make_unique<CompressedSource>(file);
}

/// The first character of the stream that is neither blank nor of a byte-order mark.
std::optional<char> first_character(const InputFile& file) {
  const std::unique_ptr<ByteSource> source = open_source(file);
  std::string piece;
  for (std::uint64_t offset = 0; offset < file.size; offset += piece.size()) {
    piece.resize(std::min(kPieceBytes, file.size - offset));
    source->read(offset, std::as_writable_bytes(std::span(piece)));
    std::string_view text = piece;
    if (offset == 0 && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    const std::size_t at = text.find_first_not_of(" \t\r\n");
    if (at != std::string_view::npos) return text[at];
  }
  return std::nullopt;
}

/// The command that writes the bytes of the file to its standard output.
std::string reader_of(const InputFile& file) {
  if (file.compression == Compression::gzip) return "gzip -dc";
  return file.compression == Compression::zstd ? "zstd -dc" : "cat";
}

}  // namespace

std::vector<InputFile> inspect_lines(const std::vector<std::string>& arguments,
                                     std::int64_t threads, Communicator* world) {
  std::vector<InputFile> files = inspect_inputs(arguments, threads, world);
  for (const InputFile& file : files) {
    if (first_character(file) != '[') continue;
    fail(
        ErrorKind::data,
        "--input {} begins with '[': it is a JSON array, or its lines are. Each line must be one JSON object (JSON Lines). Convert an array of records with: {} {} | jq -c '.[]' > records.jsonl",
        file.path.string(), reader_of(file), file.path.string());
  }
  return files;
}

}  // namespace trireme
