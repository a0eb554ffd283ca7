#include "data/shards/shard_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "core/error.hpp"
#include "core/files/directories.hpp"
#include "core/files/file.hpp"
#include "core/files/hdf5.hpp"
#include "core/files/refusal.hpp"
#include "core/hash/xxh3.hpp"
#include "core/process/failpoints.hpp"
#include "data/shards/frame.hpp"
#include "data/shards/schema.hpp"
#include "data/shards/shard_reader.hpp"

namespace trireme::data {
namespace {

using Parts = std::vector<std::vector<std::byte>>;

/// Calls `use(chunk)` for each block of `chunk_bytes` (the last may be shorter) of the joined
/// parts.
void for_each_chunk(const Parts& parts, std::size_t chunk_bytes,
                    const std::function<void(std::span<const std::byte>)>& use) {
  std::vector<std::byte> chunk;
  chunk.reserve(chunk_bytes);
  for (std::span<const std::byte> part : parts) {
    while (!part.empty()) {
      const auto head = part.first(std::min(part.size(), chunk_bytes - chunk.size()));
      chunk.insert(chunk.end(), head.begin(), head.end());
      part = part.subspan(head.size());
      if (chunk.size() == chunk_bytes) {
        use(chunk);
        chunk.clear();
      }
    }
  }
  if (!chunk.empty()) use(chunk);
}

void write_text(Hdf5File& file, const char* name, const std::string& text) {
  const std::uint64_t shape[] = {text.size()};
  file.write(name, DType::u8, shape, std::as_bytes(std::span(text)));
}

void write_pack(Hdf5File& file, const PackTable& pack) {
  const std::string group = schema::pack_group(pack.seq_len);
  write_vector(file, group + "/seq_ptr", DType::u64, pack.seq_ptr);
  write_vector(file, group + "/seg_doc", DType::u32, pack.seg_doc);
  write_vector(file, group + "/seg_begin", DType::u32, pack.seg_begin);
  write_vector(file, group + "/seg_len", DType::u32, pack.seg_len);
  write_vector(file, group + "/targets", DType::u32, pack.targets);
}

void write_spans(Hdf5File& file, const char* ptr, const char* span, const SpanTable& table) {
  write_vector(file, ptr, DType::u64, table.ptr);
  const std::uint64_t shape[] = {table.spans.size(), 2};
  file.write(span, DType::u32, shape, std::as_bytes(std::span(table.spans)));
}

void write_texts(Hdf5File& file, const TextColumn& column, const TextTable& table) {
  write_vector(file, column.ptr, DType::u64, table.ptr);
  write_text(file, column.bytes, table.bytes);
}

void write_targets(Hdf5File& file, const ShardContent& content) {
  const std::uint64_t documents = content.meta.counts.documents;
  const SetContent& columns = set_content(content.meta.kind, content.meta.stored_as);
  const DocumentTargets& targets = content.documents.targets;
  for (const NumberColumn& column : columns.numbers) {
    TRIREME_ASSERT(column.of(targets).size() == documents);
    write_vector(file, column.name, DType::u32, column.of(targets));
  }
  for (const SpanColumn& column : columns.spans) {
    TRIREME_ASSERT(column.of(targets).num_documents() == documents);
    write_spans(file, column.ptr, column.span, column.of(targets));
  }
  for (const TextColumn& column : columns.texts) {
    TRIREME_ASSERT(column.of(targets).num_documents() == documents);
    write_texts(file, column, column.of(targets));
  }
}

/// Writes everything except the token bytes; returns the position of the token bytes.
std::uint64_t write_skeleton(const std::filesystem::path& path, const ShardContent& content,
                             const std::vector<std::uint64_t>& chunk_hashes) {
  Hdf5File file = Hdf5File::create(path);
  file.set_attribute("format", std::string(schema::kFormat));
  file.set_attribute("version", schema::kVersion);
  write_text(file, schema::kMeta, meta_to_text(content.meta));
  write_text(file, schema::kSources, content.sources_json);
  write_text(file, schema::kBad, content.bad_json);
  write_vector(file, schema::kDocOffset, DType::u64, content.documents.offset);
  write_vector(file, schema::kDocSource, DType::u32, content.documents.source);
  write_vector(file, schema::kDocSourceOffset, DType::u64, content.documents.source_offset);
  write_vector(file, schema::kDocTextHash, DType::u64, content.documents.text_xxh3);
  if (!content.documents.line.empty())
    write_vector(file, schema::kDocLine, DType::u32, content.documents.line);
  write_vector(file, schema::kIntegrity, DType::u64, chunk_hashes);
  write_targets(file, content);
  for (const PackTable& pack : content.packs) write_pack(file, pack);
  const std::uint64_t shape[] = {content.meta.counts.tokens};
  const std::uint64_t offset =
      file.create_dataset(schema::kTokens, content.meta.token_dtype, shape);
  file.close();
  return content.meta.counts.tokens == 0 ? 0 : offset;
}

void write_tokens_and_footer(const std::filesystem::path& path, const ShardContent& content,
                             std::uint64_t tokens_offset, std::size_t chunk_bytes) {
  const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) fail_to_write("open again", path, errno);
  std::uint64_t at = tokens_offset;
  for_each_chunk(content.documents.token_parts, chunk_bytes, [&](std::span<const std::byte> chunk) {
    write_all(fd.get(), chunk, at, path);
    at += chunk.size();
  });
  // HDF5 does not write the end of an early-allocated dataset, so the file size is known only now.
  const auto size = std::max<std::uint64_t>(std::filesystem::file_size(path), at);
  Frame frame{tokens_offset, at - tokens_offset, size, {}};
  frame.xxh3 = hash_frame(fd.get(), frame, path);
  write_footer(fd.get(), frame, path);
  failpoint("shard.before_sync");
  sync_file(fd.get(), path);
}

template <class T>
void add_all(const std::vector<T>& later, std::vector<T>& column) {
  column.insert(column.end(), later.begin(), later.end());
}

}  // namespace

void DocumentColumns::append(DocumentColumns&& later, std::uint64_t first_line) {
  for (std::vector<std::byte>& part : later.token_parts) token_parts.push_back(std::move(part));
  const std::uint64_t num_tokens = offset.back();
  for (std::size_t i = 1; i < later.offset.size(); ++i)
    offset.push_back(num_tokens + later.offset[i]);
  add_all(later.source, source);
  add_all(later.source_offset, source_offset);
  add_all(later.text_xxh3, text_xxh3);
  for (const std::uint32_t number : later.line)
    line.push_back(static_cast<std::uint32_t>(first_line + number));
  targets.append(later.targets);
  counts += later.counts;
}

std::filesystem::path write_shard(const std::filesystem::path& directory,
                                  const ShardContent& content) {
  const std::size_t chunk_bytes = schema::kChunkTokens * size_of(content.meta.token_dtype);
  std::vector<std::uint64_t> hashes;
  std::uint64_t bytes = 0;
  for_each_chunk(content.documents.token_parts, chunk_bytes, [&](std::span<const std::byte> chunk) {
    hashes.push_back(xxh3_64(chunk));
    bytes += chunk.size();
  });
  const ShardCounts& counts = content.meta.counts;
  TRIREME_ASSERT(bytes == counts.tokens * size_of(content.meta.token_dtype));
  TRIREME_ASSERT(content.documents.offset.size() == counts.documents + 1 &&
                 content.documents.offset.back() == counts.tokens);

  const std::string name = schema::shard_name(content.meta.shard_index);
  const std::filesystem::path temporary =
      directory / formatted("{}{}.{}", schema::kTemporaryPrefix, name, ::getpid());
  const std::filesystem::path target = directory / name;
  remove_tree(temporary);
  try {
    const std::uint64_t offset = write_skeleton(temporary, content, hashes);
    write_tokens_and_footer(temporary, content, offset, chunk_bytes);
    TokenShard::open(temporary).verify_tokens();
    failpoint("shard.before_publish");
    publish(temporary, target);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  failpoint("shard.published");
  return target;
}

}  // namespace trireme::data
