#include "data_prep/input/chunk_reader.hpp"

#include "core/error.hpp"

namespace trireme::data_prep {

ChunkReader::ChunkReader(const std::vector<InputFile>& files, int num_workers)
    : files_(files), workers_(static_cast<std::size_t>(num_workers)) {}

void ChunkReader::start(std::vector<InputRange> chunks) {
  chunks_ = std::move(chunks);
  turns_.clear();
  std::size_t turns = 0;
  for (const InputRange& chunk : chunks_) {
    turns_.push_back(turns);
    if (files_[chunk.file].format->in_order) ++turns;
  }
  next_turn_ = 0;
  failed_ = false;
}

RecordBatch ChunkReader::read(std::size_t i, int worker) {
  const InputRange& chunk = chunks_[i];
  const InputFile& file = files_[chunk.file];
  if (!file.format->in_order) return read_with(workers_[static_cast<std::size_t>(worker)], chunk);
  std::unique_lock lock(mutex_);
  turn_.wait(lock, [&] { return failed_ || next_turn_ == turns_[i]; });
  if (failed_) fail(ErrorKind::data, "{}: reading has failed", file.path.string());
  try {
    const bool is_open = in_order_.source && in_order_.file == chunk.file;
    const std::uint64_t before = is_open ? in_order_.source->num_starts() : 0;
    RecordBatch batch = read_with(in_order_, chunk);
    num_starts_ += in_order_.source->num_starts() - before;
    ++next_turn_;
    turn_.notify_all();
    return batch;
  } catch (...) {
    failed_ = true;
    turn_.notify_all();
    throw;
  }
}

RecordBatch ChunkReader::read_with(OpenInput& input, const InputRange& chunk) const {
  if (!input.source || input.file != chunk.file) {
    input.source = files_[chunk.file].format->open(files_[chunk.file]);
    input.file = chunk.file;
  }
  return input.source->read(chunk);
}

}  // namespace trireme::data_prep
