#include <fcntl.h>

#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>

#include "config/check_options.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/files/refusal.hpp"
#include "data_prep/input/chunk_reader.hpp"
#include "data_prep/input/inputs.hpp"
#include "data_prep/input/partitions.hpp"
#include "data_prep/tokenizer/tokenizer_jobs.hpp"
#include "data_prep/tokenizer_path.hpp"
#include "data_prep/worker_pool.hpp"
#include "text/tokenizer.hpp"

namespace trireme::data_prep {
namespace {

constexpr std::uint64_t kEncodedChunkBytes = 1 << 20;

/// An output file that gets its name in finish(); without finish() it is removed.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path)
      : path_(path), temporary_(path + ".tmp." + std::to_string(::getpid())) {
    check_replaceable(path_);
    fd_ = Fd(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd_) fail_to_write("create", temporary_, errno);
  }

  ~OutputFile() {
    std::error_code ignored;
    if (fd_) std::filesystem::remove(temporary_, ignored);
  }

  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void append(std::string_view text) {
    write_all(fd_.get(), std::as_bytes(std::span(text)), size_, temporary_);
    size_ += text.size();
  }

  void finish() {
    sync_file(fd_.get(), temporary_);
    std::error_code code;
    std::filesystem::rename(temporary_, path_, code);
    if (code) fail_to_write("replace", path_, code.value());
    fd_ = Fd();
  }

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  Fd fd_;
  std::uint64_t size_ = 0;
};

/// Converts the lines of `input` to lines of `output` in order, chunks in parallel, with a window
/// of chunks in memory. `make_converter` gets the input and returns a function that appends the
/// output line of one record; several threads call it.
template <class MakeConverter>
void convert_lines(const std::string& input, const std::string& output, std::int64_t threads,
                   const MakeConverter& make_converter) {
  const std::vector<InputFile> files = inspect_records({input});
  std::error_code code;
  if (std::filesystem::equivalent(input, output, code))
    fail(ErrorKind::usage, "--output {} is the input: give another file", output);
  const std::vector<InputRange> chunks =
      split_chunks(files, whole_files(files), kEncodedChunkBytes);
  WorkerPool pool(thread_count(threads));
  ChunkReader reader(files, pool.num_threads());
  const std::size_t window = 8 * static_cast<std::size_t>(pool.num_threads());
  OutputFile file(output);
  for (std::size_t begin = 0; begin < chunks.size(); begin += window) {
    std::vector<std::string> texts(std::min(window, chunks.size() - begin));
    const auto first = chunks.begin() + static_cast<std::ptrdiff_t>(begin);
    reader.start({first, first + static_cast<std::ptrdiff_t>(texts.size())});
    pool.run(
        texts.size(),
        [&](std::size_t i, int worker) {
          const RecordBatch batch = reader.read(i, worker);
          auto convert = make_converter(files.front());
          for (const Record& record : batch.records) convert(record, texts[i]);
        },
        [] {});
    for (const std::string& text : texts) file.append(text);
  }
  file.finish();
}

void append_ids(const std::vector<std::uint32_t>& ids, std::string& out) {
  out += "{\"ids\":[";
  char digits[16];
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i != 0) out += ',';
    out.append(digits, std::to_chars(digits, digits + sizeof digits, ids[i]).ptr);
  }
  out += "]}\n";
}

std::vector<std::uint32_t> read_ids(std::string_view json, const std::string& where) {
  const Json line = parse_json(json, where);
  const auto found = line.is_object() ? line.find("ids") : line.end();
  if (!line.is_object() || found == line.end() || !found->is_array())
    fail(ErrorKind::data, "{}: no list 'ids'", where);
  std::vector<std::uint32_t> ids;
  for (const Json& id : *found) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > UINT32_MAX)
      fail(ErrorKind::data, "{}: 'ids' must contain only token ids", where);
    ids.push_back(id.get<std::uint32_t>());
  }
  return ids;
}

}  // namespace

void encode_file(const EncodeConfig& config) {
  config::throw_if_wrong(config);
  const text::Tokenizer tokenizer = load_tokenizer(config.tokenizer);
  const text::EncodeOptions options{config.add_special_tokens, config.special_in_text == "allow"};
  const OnBadText on_bad_text = on_bad_text_named(config.on_bad_text);
  convert_lines(config.input, config.output, config.threads, [&](const InputFile& file) {
    return [&, reader = std::make_shared<TextFieldReader>(config.field, on_bad_text)](
               const Record& record, std::string& out) {
      const TextRecord read = reader->read(record);
      if (read.status == RecordStatus::blank) return;
      if (read.status != RecordStatus::text)
        fail(ErrorKind::data, "{}: {}", record_location(file, record.position), read.reason);
      append_ids(tokenizer.encode(read.text, options), out);
    };
  });
}

void decode_file(const DecodeConfig& config) {
  const text::Tokenizer tokenizer = load_tokenizer(config.tokenizer);
  convert_lines(config.input, config.output, 0, [&](const InputFile& file) {
    return [&](const Record& record, std::string& out) {
      if (record.text.find_first_not_of(" \t\r") == std::string_view::npos) return;
      Json text = Json::object();
      const auto ids = read_ids(record.text, record_location(file, record.position));
      text["text"] = tokenizer.decode(ids, config.skip_special);
      out += text.dump();
      out += '\n';
    };
  });
}

}  // namespace trireme::data_prep
