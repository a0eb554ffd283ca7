#pragma once
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "data_prep/input/line_reader.hpp"

namespace trireme {

/// The lines of many blocks for several threads, plain and compressed inputs alike.
///
/// Plain blocks are read by each thread for itself. A compressed input is one stream: its blocks
/// are decompressed in order, each by the thread that asks for it, while the others work on the
/// lines of theirs. Where one list of blocks goes on after another in a compressed input,
/// decompression goes on as well.
///   memory  for each worker an open file; for the compressed input in hand its decoder, a block
///           and the longest line
class BlockReader {
 public:
  BlockReader(const std::vector<InputFile>& files, int num_workers);

  /// The next list of blocks, in input order. No read() may be under way.
  void start(std::vector<ByteRange> blocks);

  /// The lines of block i of the list. Each block is asked for at most once and lower ones first
  /// (as WorkerPool hands them out); waits for those of the lower ones that are compressed. After
  /// an error the blocks that wait fail as well. Throws as LineBlock.
  LineBlock read(std::size_t i, int worker);

  /// How often reading of a compressed input began at an access point.
  [[nodiscard]] std::uint64_t num_starts() const noexcept { return num_starts_; }

 private:
  struct Worker {
    std::unique_ptr<FileSource> source;
    std::uint32_t file = 0;  // that source is
  };

  LineBlock read_plain(const ByteRange& block, Worker& worker) const;
  LineBlock read_compressed(const ByteRange& block);

  const std::vector<InputFile>& files_;
  std::vector<Worker> workers_;
  std::vector<ByteRange> blocks_;
  std::vector<std::size_t> turns_;  // compressed blocks before each

  std::mutex mutex_;
  std::condition_variable turn_;
  std::size_t next_turn_ = 0;
  bool failed_ = false;
  std::unique_ptr<CompressedSource> source_;  // used by who has the turn
  std::uint32_t source_file_ = 0;
  std::uint64_t num_starts_ = 0;
};

}  // namespace trireme
