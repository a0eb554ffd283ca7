#pragma once
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "data_prep/input/input_format.hpp"

namespace trireme {

/// The records of many chunks for several threads, for inputs of any format.
///
/// Chunks of most formats are read by each thread for itself. A file that is read in order (a
/// compressed one) is one stream: its chunks are decompressed in order, each by the thread that asks
/// for it, while the others work on the records of theirs. Where one list of chunks goes on after
/// another in such a file, decompression goes on as well.
///   memory  for each worker an open file; for the file in hand that is read in order its decoder, a
///           chunk and the longest record
class ChunkReader {
 public:
  ChunkReader(const std::vector<InputFile>& files, int num_workers);

  /// The next list of chunks, in input order. No read() may be under way.
  void start(std::vector<InputRange> chunks);

  /// The records of chunk i of the list. Each chunk is asked for at most once and lower ones first
  /// (as WorkerPool hands them out); waits for those of the lower ones that are read in order. After
  /// an error the chunks that wait fail as well. Throws as RecordSource::read.
  RecordBatch read(std::size_t i, int worker);

  /// Returns how often reading of a file that is read in order began at an access point.
  [[nodiscard]] std::uint64_t num_starts() const noexcept { return num_starts_; }

 private:
  struct OpenInput {
    std::unique_ptr<RecordSource> source;
    std::uint32_t file = 0;  // that source is
  };

  RecordBatch read_with(OpenInput& input, const InputRange& chunk) const;

  const std::vector<InputFile>& files_;
  std::vector<OpenInput> workers_;
  std::vector<InputRange> chunks_;
  std::vector<std::size_t> turns_;  // chunks before each that are read in order

  std::mutex mutex_;
  std::condition_variable turn_;
  std::size_t next_turn_ = 0;
  bool failed_ = false;
  OpenInput in_order_;  // used by who has the turn
  std::uint64_t num_starts_ = 0;
};

}  // namespace trireme
