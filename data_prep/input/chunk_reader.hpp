#pragma once
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "data_prep/input/input_format.hpp"

namespace trireme::data_prep {

/// Reads the records of many chunks for several threads, for inputs of any format.
///
/// For most formats each thread reads its own chunks. A file with `in_order` (a compressed file) is
/// one stream: its chunks are decompressed in order, each by the thread that requests it, while the
/// other threads work on their records. If a list of chunks continues the previous list in such a
/// file, decompression continues too.
///   memory  for each worker an open file; for the current in-order file its decoder, a chunk and the
///           longest record
class ChunkReader {
 public:
  ChunkReader(const std::vector<InputFile>& files, int num_workers);

  /// Sets the next list of chunks, in input order. No read() may be running.
  void start(std::vector<InputRange> chunks);

  /// Reads the records of chunk i of the list. Each chunk must be requested at most once, and lower
  /// chunks first (like WorkerPool does). Waits for lower chunks that are read in order. After an
  /// error, waiting chunks fail too. Throws like RecordSource::read.
  RecordBatch read(std::size_t i, int worker);

  /// Returns how often the reading of in-order files has begun at an access point.
  [[nodiscard]] std::uint64_t num_starts() const noexcept { return num_starts_; }

 private:
  struct OpenInput {
    std::unique_ptr<RecordSource> source;
    std::uint32_t file = 0;  // index of the file of `source`
  };

  RecordBatch read_with(OpenInput& input, const InputRange& chunk) const;

  const std::vector<InputFile>& files_;
  std::vector<OpenInput> workers_;
  std::vector<InputRange> chunks_;
  std::vector<std::size_t> turns_;  // for each chunk, the number of earlier in-order chunks

  std::mutex mutex_;
  std::condition_variable turn_;
  std::size_t next_turn_ = 0;
  bool failed_ = false;
  OpenInput in_order_;  // only the thread that has the turn may use it
  std::uint64_t num_starts_ = 0;
};

}  // namespace trireme::data_prep
