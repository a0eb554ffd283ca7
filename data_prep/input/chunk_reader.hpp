#pragma once
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "data_prep/input/line_reader.hpp"

namespace trireme {

/// The lines of many chunks for several threads, plain and compressed inputs alike.
///
/// Plain chunks are read by each thread for itself. A compressed input is one stream: its chunks
/// are decompressed in order, each by the thread that asks for it, while the others work on the
/// lines of theirs. Where one list of chunks goes on after another in a compressed input,
/// decompression goes on as well.
///   memory  for each worker an open file; for the compressed input in hand its decoder, a chunk
///           and the longest line
class ChunkReader {
 public:
  ChunkReader(const std::vector<InputFile>& files, int num_workers);

  /// The next list of chunks, in input order. No read() may be under way.
  void start(std::vector<ByteRange> chunks);

  /// The lines of chunk i of the list. Each chunk is asked for at most once and lower ones first
  /// (as WorkerPool hands them out); waits for those of the lower ones that are compressed. After
  /// an error the chunks that wait fail as well. Throws as ChunkLines.
  ChunkLines read(std::size_t i, int worker);

  /// How often reading of a compressed input began at an access point.
  [[nodiscard]] std::uint64_t num_starts() const noexcept { return num_starts_; }

 private:
  struct Worker {
    std::unique_ptr<FileSource> source;
    std::uint32_t file = 0;  // that source is
  };

  ChunkLines read_plain(const ByteRange& chunk, Worker& worker) const;
  ChunkLines read_compressed(const ByteRange& chunk);

  const std::vector<InputFile>& files_;
  std::vector<Worker> workers_;
  std::vector<ByteRange> chunks_;
  std::vector<std::size_t> turns_;  // compressed chunks before each

  std::mutex mutex_;
  std::condition_variable turn_;
  std::size_t next_turn_ = 0;
  bool failed_ = false;
  std::unique_ptr<CompressedSource> source_;  // used by who has the turn
  std::uint32_t source_file_ = 0;
  std::uint64_t num_starts_ = 0;
};

}  // namespace trireme
