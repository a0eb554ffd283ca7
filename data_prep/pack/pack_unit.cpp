#include "data_prep/pack/pack_unit.hpp"

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

/// Fixed: /meta holds a hash over block hashes, so another size would be another format.
constexpr std::uint64_t kBlockBytes = 1 << 20;

class UnitTokenizer {
 public:
  UnitTokenizer(const Tokenizer& tokenizer, const DocumentRules& rules, int threads)
      : makers_(static_cast<std::size_t>(threads)) {
    for (auto& maker : makers_) maker = make_document_maker(tokenizer, rules);
  }

  void run(LineBlock lines, std::uint32_t file, int worker_index, BlockResult& result) {
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

void join(const BlockResult& block, std::uint32_t file, UnitResult& unit) {
  DocumentTable& documents = unit.documents;
  for (const std::uint64_t length : block.lengths)
    documents.offset.push_back(documents.offset.back() + length);
  documents.source.insert(documents.source.end(), block.lengths.size(), file);
  documents.source_offset.insert(documents.source_offset.end(), block.offsets.begin(),
                                 block.offsets.end());
  documents.text_xxh3.insert(documents.text_xxh3.end(), block.text_hashes.begin(),
                             block.text_hashes.end());
  std::uint64_t& lines_before = unit.lines[file];
  for (const std::uint32_t line : block.lines)
    documents.line.push_back(static_cast<std::uint32_t>(lines_before + line));
  lines_before += block.num_lines;
  unit.loss.append(block.loss);
  unit.pairs.append(block.pairs);
  const std::size_t room = kMaxBadListed - std::min(kMaxBadListed, unit.bad.size());
  unit.bad.insert(
      unit.bad.end(), block.bad.begin(),
      block.bad.begin() + static_cast<std::ptrdiff_t>(std::min(room, block.bad.size())));
  unit.counts += block.counts;
}

}  // namespace

UnitResult tokenize_unit(const std::vector<InputFile>& files, const Unit& unit,
                         const Tokenizer& tokenizer, const DocumentRules& rules,
                         BlockReader& reader, WorkerPool& pool, ProgressDisplay& progress,
                         const std::function<void()>& tick) {
  const std::vector<ByteRange> blocks = split_blocks(unit, kBlockBytes);
  std::vector<BlockResult> results(blocks.size());
  UnitTokenizer work(tokenizer, rules, pool.num_threads());
  reader.start(blocks);
  const std::size_t width = size_of(token_dtype_for(tokenizer.vocab_size()));
  pool.run(
      blocks.size(),
      [&](std::size_t i, int worker) {
        LineBlock lines = reader.read(i, worker);
        if (num_stop_signals() > 1) throw UnitDropped();
        work.run(std::move(lines), blocks[i].file, worker, results[i]);
        progress.add(blocks[i].end - blocks[i].begin, results[i].lengths.size(),
                     results[i].tokens.size() / width);
      },
      tick);

  UnitResult result;
  Hasher hasher;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (const auto& fatal = results[i].fatal) {
      fail(ErrorKind::data, "{}: {}; --on-bad-text skip leaves such lines out, replace puts U+FFFD",
           byte_place(files[fatal->file].path.string(), fatal->offset), fatal->reason);
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

std::string hash_unit(const Unit& unit, BlockReader& reader, WorkerPool& pool,
                      ProgressDisplay& progress, const std::function<void()>& tick) {
  const std::vector<ByteRange> blocks = split_blocks(unit, kBlockBytes);
  std::vector<std::uint64_t> hashes(blocks.size());
  reader.start(blocks);
  pool.run(
      blocks.size(),
      [&](std::size_t i, int worker) {
        hashes[i] = reader.read(i, worker).hash();
        if (num_stop_signals() != 0) throw UnitDropped();
        progress.add(blocks[i].end - blocks[i].begin, 0, 0);
      },
      tick);
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(hashes)));
  return hasher.hex();
}

}  // namespace trireme
