#include "data_prep/pack_unit.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "data_prep/stop_signals.hpp"

namespace trireme {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian");

/// Fixed: /meta holds a hash over block hashes, so another size would be another format.
constexpr std::uint64_t kBlockBytes = 1 << 20;

struct BlockResult {
  std::vector<std::byte> tokens;
  std::vector<std::uint64_t> lengths;
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint64_t> text_hashes;
  std::vector<BadLine> bad;
  ShardCounts counts;
  std::uint64_t hash = 0;
  std::optional<BadLine> fatal;
};

/// What one thread works with.
struct Worker {
  std::optional<TextFieldReader> reader;
  std::vector<std::uint32_t> ids;
};

class UnitTokenizer {
 public:
  UnitTokenizer(const Tokenizer& tokenizer, const PackConfig& config, int threads)
      : tokenizer_(tokenizer),
        width_(size_of(token_dtype_for(tokenizer.vocab_size()))),
        workers_(static_cast<std::size_t>(threads)) {
    options_.add_special_tokens = false;
    options_.match_added_tokens = config.special_in_text == "allow";
    if (config.bos) bos_ = tokenizer.bos_id();
    if (config.eos) eos_ = tokenizer.eos_id();
    for (Worker& worker : workers_) worker.reader.emplace(config.field, config.on_bad_text);
  }

  void run(LineBlock lines, std::uint32_t file, int worker_index, BlockResult& result) {
    Worker& worker = workers_[static_cast<std::size_t>(worker_index)];
    result.hash = lines.hash();
    Line line;
    while (!result.fatal && lines.next(line)) take(line, file, worker, result);
  }

 private:
  void take(const Line& line, std::uint32_t file, Worker& worker, BlockResult& result) {
    const TextRecord record = worker.reader->read(line);
    switch (record.status) {
      case RecordStatus::blank:
        return;
      case RecordStatus::bad:
        ++result.counts.bad_lines;
        if (result.bad.size() < kMaxBadListed)
          result.bad.push_back({file, line.offset, record.reason});
        return;
      case RecordStatus::bad_text:
        result.fatal = BadLine{file, line.offset, record.reason};
        return;
      case RecordStatus::text:
        break;
    }
    result.counts.replaced_chars += record.replaced;
    worker.ids = tokenizer_.encode(record.text, options_);
    if (worker.ids.empty()) {
      ++result.counts.dropped;
      return;
    }
    const std::size_t before = result.tokens.size();
    if (bos_) worker.ids.insert(worker.ids.begin(), *bos_);
    if (eos_) worker.ids.push_back(*eos_);
    append(worker.ids, result.tokens);
    result.lengths.push_back((result.tokens.size() - before) / width_);
    result.offsets.push_back(line.offset);
    result.text_hashes.push_back(xxh3_64(record.text));
  }

  void append(const std::vector<std::uint32_t>& ids, std::vector<std::byte>& tokens) const {
    std::byte* at = &*tokens.insert(tokens.end(), ids.size() * width_, std::byte{0});
    for (const std::uint32_t id : ids) {
      std::memcpy(at, &id, width_);  // little-endian: the low bytes come first
      at += width_;
    }
  }

  const Tokenizer& tokenizer_;
  EncodeOptions options_;
  std::size_t width_;
  std::optional<std::uint32_t> bos_, eos_;
  std::vector<Worker> workers_;
};

void join(const BlockResult& block, std::uint32_t file, UnitResult& unit) {
  DocumentTable& documents = unit.documents;
  for (const std::uint64_t length : block.lengths)
    documents.offset.push_back(documents.offset.back() + length);
  documents.source.insert(documents.source.end(), block.lengths.size(), file);
  documents.source_offset.insert(
      documents.source_offset.end(), block.offsets.begin(), block.offsets.end());
  documents.text_xxh3.insert(
      documents.text_xxh3.end(), block.text_hashes.begin(), block.text_hashes.end());
  const std::size_t room = kMaxBadListed - std::min(kMaxBadListed, unit.bad.size());
  unit.bad.insert(
      unit.bad.end(),
      block.bad.begin(),
      block.bad.begin() + static_cast<std::ptrdiff_t>(std::min(room, block.bad.size())));
  unit.counts += block.counts;
}

}  // namespace

UnitResult tokenize_unit(const std::vector<InputFile>& files,
                         const Unit& unit,
                         const Tokenizer& tokenizer,
                         const PackConfig& config,
                         BlockReader& reader,
                         WorkerPool& pool,
                         Progress& progress,
                         const std::function<void()>& tick) {
  const std::vector<ByteRange> blocks = split_blocks(unit, kBlockBytes);
  std::vector<BlockResult> results(blocks.size());
  UnitTokenizer work(tokenizer, config, pool.num_threads());
  reader.start(blocks);
  const std::size_t width = size_of(token_dtype_for(tokenizer.vocab_size()));
  pool.run(
      blocks.size(),
      [&](std::size_t i, int worker) {
        LineBlock lines = reader.read(i, worker);
        if (num_stop_signals() > 1) throw UnitDropped();
        work.run(std::move(lines), blocks[i].file, worker, results[i]);
        progress.add(blocks[i].end - blocks[i].begin,
                     results[i].lengths.size(),
                     results[i].tokens.size() / width);
      },
      tick);

  UnitResult result;
  Hasher hasher;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (const auto& fatal = results[i].fatal) {
      fail(ErrorKind::data,
           files[fatal->file].path.string(),
           ":",
           fatal->offset,
           ": ",
           fatal->reason,
           "; --on-bad-text skip leaves such lines out, replace puts U+FFFD");
    }
    join(results[i], blocks[i].file, result);
    result.token_parts.push_back(std::move(results[i].tokens));
    hasher.update(std::as_bytes(std::span(&results[i].hash, 1)));
  }
  result.counts.documents = result.documents.source.size();
  result.counts.tokens = result.documents.offset.back();
  result.input_xxh3 = hasher.hex();
  return result;
}

}  // namespace trireme
