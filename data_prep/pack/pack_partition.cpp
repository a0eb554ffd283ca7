#include "data_prep/pack/pack_partition.hpp"

#include <algorithm>
#include <memory>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"
#include "data_prep/documents/document_maker.hpp"
#include "data_prep/input/line_reader.hpp"
#include "data_prep/stop_signals.hpp"

namespace trireme {
namespace {

/// Fixed: /meta holds a hash over chunk hashes, so another size would be another format.
constexpr std::uint64_t kChunkBytes = 1 << 20;

class PartitionTokenizer {
 public:
  PartitionTokenizer(const Tokenizer& tokenizer, const DocumentRules& rules, int threads)
      : makers_(static_cast<std::size_t>(threads)) {
    for (auto& maker : makers_) maker = make_document_maker(tokenizer, rules);
  }

  void run(ChunkLines lines, std::uint32_t file, int worker_index, ChunkResult& result) {
    DocumentMaker& maker = *makers_[static_cast<std::size_t>(worker_index)];
    result.hash = lines.hash();
    Line line;
    while (!result.fatal && lines.next(line)) {
      result.line_of_next = static_cast<std::uint32_t>(result.num_lines++);
      maker.take(line, file, result);
    }
  }

 private:
  std::vector<std::unique_ptr<DocumentMaker>> makers_;  // one a thread
};

void join(const ChunkResult& chunk, std::uint32_t file, PartitionResult& partition) {
  DocumentTable& documents = partition.documents;
  for (const std::uint64_t length : chunk.lengths)
    documents.offset.push_back(documents.offset.back() + length);
  documents.source.insert(documents.source.end(), chunk.lengths.size(), file);
  documents.source_offset.insert(documents.source_offset.end(), chunk.offsets.begin(),
                                 chunk.offsets.end());
  documents.text_xxh3.insert(documents.text_xxh3.end(), chunk.text_hashes.begin(),
                             chunk.text_hashes.end());
  std::uint64_t& lines_before = partition.lines[file];
  for (const std::uint32_t line : chunk.lines)
    documents.line.push_back(static_cast<std::uint32_t>(lines_before + line));
  lines_before += chunk.num_lines;
  partition.targets.append(chunk.targets);
  const std::size_t room = kMaxBadListed - std::min(kMaxBadListed, partition.bad.size());
  partition.bad.insert(
      partition.bad.end(), chunk.bad.begin(),
      chunk.bad.begin() + static_cast<std::ptrdiff_t>(std::min(room, chunk.bad.size())));
  partition.counts += chunk.counts;
  for (const auto& [name, field] : chunk.ignored) ignored_slot(partition.ignored, name).add(field);
}

/// With --fields the other texts of a record are lost: refuses them unless --ignore-fields names
/// them. The mark of a KTO record that says whether its answer is a good one counts as a text.
void check_unused_texts(const std::vector<InputFile>& files, const DocumentRules& rules,
                        const PartitionResult& partition) {
  if (rules.fields.empty()) return;
  const bool completion =
      std::find(rules.fields.begin(), rules.fields.end(), "completion") != rules.fields.end();
  for (const auto& [name, field] : partition.ignored) {
    const bool is_label = completion && name == "label" && field.with_text == 0;
    if (is_named(rules.ignore_fields, name) || (field.with_text == 0 && !is_label)) continue;
    const std::uint64_t count = is_label ? field.records : field.with_text;
    const std::string first =
        is_label
            ? std::string()
            : formatted(", first in {}", byte_place(files[field.file].path.string(), field.offset));
    fail(
        ErrorKind::usage,
        "--fields {} leaves '{}' unread, which holds {} in {} record{}{}: give --ignore-fields {} if it may be lost, else write each record as {{\"messages\": [{{\"role\", \"content\"}}]}} and leave --fields out",
        rules.config.chat.record_fields, name, is_label ? "a label" : "text", count,
        count == 1 ? "" : "s", first, name);
  }
}

}  // namespace

PartitionResult tokenize_partition(const std::vector<InputFile>& files, const Partition& partition,
                                   const Tokenizer& tokenizer, const DocumentRules& rules,
                                   ChunkReader& reader, WorkerPool& pool, ProgressDisplay& progress,
                                   const std::function<void()>& tick) {
  const std::vector<ByteRange> chunks = split_chunks(partition, kChunkBytes);
  std::vector<ChunkResult> results(chunks.size());
  PartitionTokenizer work(tokenizer, rules, pool.num_threads());
  reader.start(chunks);
  const std::size_t width = size_of(token_dtype_for(tokenizer.vocab_size()));
  pool.run(
      chunks.size(),
      [&](std::size_t i, int worker) {
        ChunkLines lines = reader.read(i, worker);
        if (num_stop_signals() > 1) throw PartitionDropped();
        work.run(std::move(lines), chunks[i].file, worker, results[i]);
        progress.add(chunks[i].end - chunks[i].begin, results[i].lengths.size(),
                     results[i].tokens.size() / width);
      },
      tick);

  PartitionResult result;
  Hasher hasher;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (const auto& fatal = results[i].fatal) {
      fail(ErrorKind::data, "{}: {}; --on-bad-text skip leaves such lines out, replace puts U+FFFD",
           byte_place(files[fatal->file].path.string(), fatal->offset), fatal->reason);
    }
    join(results[i], chunks[i].file, result);
    result.token_parts.push_back(std::move(results[i].tokens));
    hasher.update(std::as_bytes(std::span(&results[i].hash, 1)));
  }
  check_unused_texts(files, rules, result);
  result.counts.documents = result.documents.source.size();
  result.counts.tokens = result.documents.offset.back();
  result.input_xxh3 = hasher.hex();
  return result;
}

std::string hash_partition(const Partition& partition, ChunkReader& reader, WorkerPool& pool,
                           ProgressDisplay& progress, const std::function<void()>& tick) {
  const std::vector<ByteRange> chunks = split_chunks(partition, kChunkBytes);
  std::vector<std::uint64_t> hashes(chunks.size());
  reader.start(chunks);
  pool.run(
      chunks.size(),
      [&](std::size_t i, int worker) {
        hashes[i] = reader.read(i, worker).hash();
        if (num_stop_signals() != 0) throw PartitionDropped();
        progress.add(chunks[i].end - chunks[i].begin, 0, 0);
      },
      tick);
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(hashes)));
  return hasher.hex();
}

}  // namespace trireme
