#include "data_prep/pack/pack_partition.hpp"

#include <algorithm>
#include <iterator>
#include <memory>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "data_prep/documents/document_maker.hpp"
#include "data_prep/input/byte_source.hpp"
#include "data_prep/stop_signals.hpp"

namespace trireme::data_prep {
namespace {

/// This size must not change: /meta contains a hash over chunk hashes, so another size would be
/// another format.
constexpr std::uint64_t kChunkBytes = 1 << 20;

/// Appends the documents of a chunk to those of the previous chunks.
void join(ChunkResult&& chunk, PartitionResult& partition) {
  std::uint64_t& lines = partition.lines[chunk.source];
  partition.documents.append(std::move(chunk.documents), lines);
  lines += chunk.num_records;
  const std::size_t room = kMaxInvalidListed - std::min(kMaxInvalidListed, partition.bad.size());
  chunk.bad.resize(std::min(room, chunk.bad.size()));
  std::ranges::move(chunk.bad, std::back_inserter(partition.bad));
  for (const auto& [name, field] : chunk.ignored)
    data::ignored_slot(partition.ignored, name).add(field);
}

/// Throws Error(usage) if a record has a text that neither --fields nor --ignore-fields names,
/// because the set would not have this text. The label of a KTO record counts as a text.
void check_unused_texts(const std::vector<InputFile>& files, const Partition& partition,
                        const DocumentRules& rules, const PartitionResult& result) {
  if (rules.fields.empty()) return;
  const bool completion =
      std::find(rules.fields.begin(), rules.fields.end(), "completion") != rules.fields.end();
  for (const auto& [name, field] : result.ignored) {
    const bool is_label = completion && name == "label" && field.with_text == 0;
    if (is_named(rules.ignore_fields, name) || (field.with_text == 0 && !is_label)) continue;
    const std::uint64_t count = is_label ? field.records : field.with_text;
    const std::string first =
        is_label ? std::string()
                 : formatted(", first in {}",
                             record_location(files[partition[field.source].file], field.position));
    fail(
        ErrorKind::usage,
        "--fields {} leaves '{}' unread, which has {} in {} record{}{}: give --ignore-fields {} to drop it, or write each record as {{\"messages\": [{{\"role\", \"content\"}}]}} and omit --fields",
        rules.config.chat.record_fields, name, is_label ? "a label" : "text", count,
        count == 1 ? "" : "s", first, name);
  }
}

}  // namespace

PartitionResult tokenize_partition(const std::vector<InputFile>& files, const Partition& partition,
                                   const text::Tokenizer& tokenizer, const DocumentRules& rules,
                                   ChunkReader& reader, WorkerPool& pool, ProgressDisplay& progress,
                                   const std::function<void()>& tick) {
  const std::vector<InputRange> chunks = split_chunks(files, partition, kChunkBytes);
  std::vector<ChunkResult> results(chunks.size());
  std::size_t source = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    while (partition[source].file != chunks[i].file) ++source;
    results[i].file = chunks[i].file;
    results[i].source = static_cast<std::uint32_t>(source);
  }
  std::vector<std::unique_ptr<DocumentMaker>> makers(static_cast<std::size_t>(pool.num_threads()));
  for (auto& maker : makers) maker = make_document_maker(tokenizer, rules);
  reader.start(chunks);
  pool.run(
      chunks.size(),
      [&](std::size_t i, int worker) {
        const RecordBatch batch = reader.read(i, worker);
        if (num_stop_signals() > 1) throw PartitionDropped();
        ChunkResult& result = results[i];
        result.hash = batch.hash;
        for (const Record& record : batch.records) {
          makers[static_cast<std::size_t>(worker)]->take(record, result);
          ++result.num_records;
          if (result.fatal) break;
        }
        const data::ShardCounts& counts = result.documents.counts;
        progress.add(bytes_of(files, {chunks[i]}), counts.documents, counts.tokens);
      },
      tick);

  PartitionResult result;
  result.lines.resize(partition.size());
  Hasher hasher;
  for (ChunkResult& chunk : results) {
    if (const auto& fatal = chunk.fatal) {
      fail(ErrorKind::data, "{}: {}", line_location(files[chunk.file], fatal->position),
           fatal->reason);
    }
    hasher.update(std::as_bytes(std::span(&chunk.hash, 1)));
    join(std::move(chunk), result);
  }
  check_unused_texts(files, partition, rules, result);
  result.input_xxh3 = hasher.hex();
  return result;
}

std::string hash_partition(const std::vector<InputFile>& files, const Partition& partition,
                           ChunkReader& reader, WorkerPool& pool, ProgressDisplay& progress,
                           const std::function<void()>& tick) {
  const std::vector<InputRange> chunks = split_chunks(files, partition, kChunkBytes);
  std::vector<std::uint64_t> hashes(chunks.size());
  reader.start(chunks);
  pool.run(
      chunks.size(),
      [&](std::size_t i, int worker) {
        hashes[i] = reader.read(i, worker).hash;
        if (num_stop_signals() != 0) throw PartitionDropped();
        progress.add(bytes_of(files, {chunks[i]}), 0, 0);
      },
      tick);
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(hashes)));
  return hasher.hex();
}

}  // namespace trireme::data_prep
