#include "data/shards/shard_reader.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "core/error.hpp"
#include "core/files/hdf5.hpp"
#include "core/hash/xxh3.hpp"
#include "data/shards/schema.hpp"

namespace trireme::data {
namespace {

std::uint64_t size_of_file(int fd, const std::filesystem::path& path) {
  struct stat info {};

  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    fail(ErrorKind::data, "{} is not a regular file", path.string());
  return static_cast<std::uint64_t>(info.st_size);
}

void check_format(const Hdf5File& file, const std::filesystem::path& path) {
  const std::string format = file.attribute_text("format");
  const std::uint64_t version = file.attribute_number("version");
  if (format != schema::kFormat)
    fail(ErrorKind::data, "{}: format '{}', must be {}", path.string(), format, schema::kFormat);
  if (version != schema::kVersion) {
    fail(ErrorKind::data, "{}: shard format version {}, this program reads version {}",
         path.string(), version, schema::kVersion);
  }
}

}  // namespace

TokenShard TokenShard::open(const std::filesystem::path& path) {
  TokenShard shard;
  shard.path_ = path;
  shard.live_ = std::make_unique<Live>();
  shard.live_->fd = open_read(path);
  shard.frame_ =
      check_frame(shard.live_->fd.get(), size_of_file(shard.live_->fd.get(), path), path);
  shard.locate_tables();
  shard.check_shape();
  shard.live_->checked.assign(shard.table(schema::kIntegrity).count, false);
  return shard;
}

void TokenShard::locate_tables() {
  const Hdf5File file = Hdf5File::open(path_);
  check_format(file, path_);
  const auto locate = [&](const std::string& name, bool is_pairs = false) {
    const Hdf5Dataset info = file.dataset(name);
    if (is_pairs ? info.shape.size() != 2 || info.shape[1] != 2 : info.shape.size() != 1) {
      fail(ErrorKind::data, "{}: {} has {} dimensions, must {}", path_.string(), name,
           info.shape.size(), is_pairs ? "be [S, 2]" : "have 1");
    }
    const std::uint64_t bytes = info.count() * size_of(info.dtype);
    const bool inside = info.count() == 0 || (info.offset && info.count() <= frame_.hdf5_bytes &&
                                              *info.offset <= frame_.hdf5_bytes &&
                                              bytes <= frame_.hdf5_bytes - *info.offset);
    if (!inside)
      fail(ErrorKind::data, "{}: {} is not contiguous inside the file", path_.string(), name);
    tables_[name] = {info.offset.value_or(0), info.count(), info.dtype};
  };
  for (const char* name :
       {schema::kTokens, schema::kDocOffset, schema::kDocSource, schema::kDocSourceOffset,
        schema::kDocTextHash, schema::kIntegrity, schema::kSources, schema::kBad, schema::kMeta}) {
    locate(name);
  }
  const Table& meta = table(schema::kMeta);
  const auto text = read_table<std::uint8_t>(schema::kMeta, 0, meta.count);
  meta_ = meta_from_text({reinterpret_cast<const char*>(text.data()), text.size()},
                         formatted("{}:{}", path_.string(), schema::kMeta));
  for (const NumberColumn& column : contents().numbers) locate(column.name);
  for (const SpanColumn& column : contents().spans) {
    locate(column.ptr);
    locate(column.span, /*is_pairs=*/true);
  }
  for (const TextColumn& column : contents().texts) {
    locate(column.ptr);
    locate(column.bytes);
  }
  if (file.has(schema::kDocLine)) locate(schema::kDocLine);
  for (const auto& entry : meta_.packs) {
    for (const char* part : {"/seq_ptr", "/seg_doc", "/seg_begin", "/seg_len", "/targets"}) {
      locate(schema::pack_group(entry.first) + part);
    }
  }
}

void TokenShard::expect_table(const std::string& name, DType dtype, std::uint64_t count) const {
  const Table& found = table(name);
  if (found.dtype == dtype && found.count == count) return;
  fail(ErrorKind::data, "{}: {} is {} [{}], must be {} [{}]", path_.string(), name,
       dtype_name(found.dtype), found.count, dtype_name(dtype), count);
}

void TokenShard::check_shape() const {
  const ShardCounts& counts = meta_.counts;
  expect_table(schema::kTokens, meta_.token_dtype, counts.tokens);
  expect_table(schema::kDocOffset, DType::u64, counts.documents + 1);
  expect_table(schema::kDocSource, DType::u32, counts.documents);
  expect_table(schema::kDocSourceOffset, DType::u64, counts.documents);
  expect_table(schema::kDocTextHash, DType::u64, counts.documents);
  expect_table(schema::kIntegrity, DType::u64,
               (counts.tokens + schema::kChunkTokens - 1) / schema::kChunkTokens);
  for (const auto& [seq_len, sequences] : meta_.packs) {
    const std::string group = schema::pack_group(seq_len);
    expect_table(group + "/seq_ptr", DType::u64, sequences + 1);
    expect_table(group + "/targets", DType::u32, sequences);
    const std::uint64_t segments = table(group + "/seg_doc").count;
    for (const char* part : {"/seg_doc", "/seg_begin", "/seg_len"})
      expect_table(group + part, DType::u32, segments);
  }
  check_target_shape();
  const Table& tokens = table(schema::kTokens);
  if (counts.tokens != 0 && (tokens.offset != frame_.tokens_offset ||
                             counts.tokens * size_of(tokens.dtype) != frame_.tokens_bytes)) {
    fail(ErrorKind::data, "{}: footer and HDF5 have different positions of /tokens",
         path_.string());
  }
}

const TokenShard::Table& TokenShard::table(const std::string& name) const {
  const auto found = tables_.find(name);
  if (found == tables_.end())
    fail(ErrorKind::internal, "{}: table {} was not located", path_.string(), name);
  return found->second;
}

int TokenShard::file() const {
  if (!live_->fd) {
    Fd fd = open_read(path_);
    if (size_of_file(fd.get(), path_) != frame_.hdf5_bytes + kFooterBytes) {
      fail(ErrorKind::data, "{}: the size changed while the file was in use", path_.string());
    }
    live_->fd = std::move(fd);
  }
  return live_->fd.get();
}

void TokenShard::release() const {
  const std::lock_guard lock(live_->mutex);
  live_->fd = Fd();
}

void TokenShard::read_bytes(std::uint64_t offset, std::span<std::byte> bytes) const {
  const std::lock_guard lock(live_->mutex);
  read_all(file(), bytes, offset, path_);
}

template <class T>
std::vector<T> TokenShard::read_table(const std::string& name, std::uint64_t begin,
                                      std::uint64_t count) const {
  const Table& at = table(name);
  if (size_of(at.dtype) != sizeof(T))
    fail(ErrorKind::data, "{}: {} is {}", path_.string(), name, dtype_name(at.dtype));
  if (count > at.count || begin > at.count - count) {
    fail(ErrorKind::data, "{}: {} has {} entries, requested {}..{}", path_.string(), name, at.count,
         begin, begin + count);
  }
  std::vector<T> values(count);
  if (count != 0)
    read_bytes(at.offset + begin * sizeof(T), std::as_writable_bytes(std::span(values)));
  return values;
}

void TokenShard::check_chunk(std::uint64_t chunk) const {
  const std::uint64_t width = size_of(meta_.token_dtype);
  const std::uint64_t begin = chunk * schema::kChunkTokens;
  const std::uint64_t count = std::min(schema::kChunkTokens, num_tokens() - begin);
  {
    const std::lock_guard lock(live_->mutex);
    if (live_->checked[chunk]) return;
  }
  std::vector<std::byte> bytes(count * width);
  read_bytes(frame_.tokens_offset + begin * width, bytes);
  if (xxh3_64(bytes) != read_table<std::uint64_t>(schema::kIntegrity, chunk, 1)[0]) {
    const std::uint64_t at = frame_.tokens_offset + begin * width;
    fail(ErrorKind::data, "{}: {} is damaged in chunk {} (tokens {}..{}, bytes {}..{})",
         path_.string(), schema::kTokens, chunk, begin, begin + count, at, at + bytes.size());
  }
  const std::lock_guard lock(live_->mutex);
  live_->checked[chunk] = true;
}

void TokenShard::verify_tokens() const {
  const std::uint64_t chunks = table(schema::kIntegrity).count;
  for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) {
    {
      const std::lock_guard lock(live_->mutex);
      live_->checked[chunk] = false;
    }
    check_chunk(chunk);
  }
}

void TokenShard::read_tokens(std::uint64_t begin, std::span<std::int64_t> ids) const {
  if (ids.empty()) return;
  if (ids.size() > num_tokens() || begin > num_tokens() - ids.size()) {
    fail(ErrorKind::data, "{}: {} has {} entries, requested {}..{}", path_.string(),
         schema::kTokens, num_tokens(), begin, begin + ids.size());
  }
  const std::uint64_t last = (begin + ids.size() - 1) / schema::kChunkTokens;
  for (std::uint64_t chunk = begin / schema::kChunkTokens; chunk <= last; ++chunk)
    check_chunk(chunk);
  if (meta_.token_dtype == DType::u16) {
    const auto narrow = read_table<std::uint16_t>(schema::kTokens, begin, ids.size());
    std::copy(narrow.begin(), narrow.end(), ids.begin());
  } else {
    const auto narrow = read_table<std::uint32_t>(schema::kTokens, begin, ids.size());
    std::copy(narrow.begin(), narrow.end(), ids.begin());
  }
}

std::vector<std::uint64_t> TokenShard::document_offsets() const {
  return read_table<std::uint64_t>(schema::kDocOffset, 0, num_documents() + 1);
}

std::uint64_t TokenShard::document_begin(std::uint64_t doc) const {
  return read_table<std::uint64_t>(schema::kDocOffset, doc, 1)[0];
}

std::string TokenShard::sources_json() const {
  const auto text = read_table<char>(schema::kSources, 0, table(schema::kSources).count);
  return {text.begin(), text.end()};
}

std::string TokenShard::bad_json() const {
  const auto text = read_table<char>(schema::kBad, 0, table(schema::kBad).count);
  return {text.begin(), text.end()};
}

std::string TokenShard::text(const TextColumn& column, std::uint64_t doc) const {
  const auto ends = read_table<std::uint64_t>(column.ptr, doc, 2);
  if (ends[1] < ends[0] || ends[1] > table(column.bytes).count)
    fail(ErrorKind::data, "{}: {} is invalid at document {}", path_.string(), column.ptr, doc);
  const auto text = read_table<char>(column.bytes, ends[0], ends[1] - ends[0]);
  return {text.begin(), text.end()};
}

std::vector<std::uint32_t> TokenShard::document_sources() const {
  return read_table<std::uint32_t>(schema::kDocSource, 0, num_documents());
}

std::vector<std::uint64_t> TokenShard::document_source_offsets() const {
  return read_table<std::uint64_t>(schema::kDocSourceOffset, 0, num_documents());
}

template std::vector<std::uint32_t> TokenShard::read_table(const std::string&, std::uint64_t,
                                                           std::uint64_t) const;
template std::vector<std::uint64_t> TokenShard::read_table(const std::string&, std::uint64_t,
                                                           std::uint64_t) const;

std::vector<Segment> TokenShard::segments(std::int64_t seq_len, std::uint64_t sequence) const {
  const std::string group = schema::pack_group(seq_len);
  const auto ends = read_table<std::uint64_t>(group + "/seq_ptr", sequence, 2);
  if (ends[1] < ends[0] || ends[1] - ends[0] > static_cast<std::uint64_t>(seq_len)) {
    fail(ErrorKind::data, "{}: {}/seq_ptr is invalid at sequence {}", path_.string(), group,
         sequence);
  }
  const std::uint64_t count = ends[1] - ends[0];
  const auto docs = read_table<std::uint32_t>(group + "/seg_doc", ends[0], count);
  const auto begins = read_table<std::uint32_t>(group + "/seg_begin", ends[0], count);
  const auto lengths = read_table<std::uint32_t>(group + "/seg_len", ends[0], count);
  std::vector<Segment> segments(count);
  for (std::size_t i = 0; i < count; ++i) segments[i] = {docs[i], begins[i], lengths[i]};
  return segments;
}

std::uint32_t TokenShard::num_targets(std::int64_t seq_len, std::uint64_t sequence) const {
  return read_table<std::uint32_t>(schema::pack_group(seq_len) + "/targets", sequence, 1)[0];
}

}  // namespace trireme::data
