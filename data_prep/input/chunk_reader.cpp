#include "data_prep/input/chunk_reader.hpp"

#include "core/error.hpp"

namespace trireme {

ChunkReader::ChunkReader(const std::vector<InputFile>& files, int num_workers)
    : files_(files), workers_(static_cast<std::size_t>(num_workers)) {}

void ChunkReader::start(std::vector<ByteRange> chunks) {
  chunks_ = std::move(chunks);
  turns_.clear();
  std::size_t compressed = 0;
  for (const ByteRange& chunk : chunks_) {
    turns_.push_back(compressed);
    if (files_[chunk.file].compression != Compression::none) ++compressed;
  }
  next_turn_ = 0;
  failed_ = false;
}

ChunkLines ChunkReader::read(std::size_t i, int worker) {
  const ByteRange& chunk = chunks_[i];
  if (files_[chunk.file].compression == Compression::none)
    return read_plain(chunk, workers_[static_cast<std::size_t>(worker)]);
  std::unique_lock lock(mutex_);
  turn_.wait(lock, [&] { return failed_ || next_turn_ == turns_[i]; });
  if (failed_) fail(ErrorKind::data, "{}: reading has failed", files_[chunk.file].path.string());
  try {
    ChunkLines lines = read_compressed(chunk);
    ++next_turn_;
    turn_.notify_all();
    return lines;
  } catch (...) {
    failed_ = true;
    turn_.notify_all();
    throw;
  }
}

ChunkLines ChunkReader::read_plain(const ByteRange& chunk, Worker& worker) const {
  if (!worker.source || worker.file != chunk.file) {
    worker.source = std::make_unique<FileSource>(files_[chunk.file]);
    worker.file = chunk.file;
  }
  return {*worker.source, files_[chunk.file], chunk};
}

ChunkLines ChunkReader::read_compressed(const ByteRange& chunk) {
  if (!source_ || source_file_ != chunk.file) {
    source_ = std::make_unique<CompressedSource>(files_[chunk.file]);
    source_file_ = chunk.file;
  }
  const std::uint64_t before = source_->num_starts();
  ChunkLines lines(*source_, files_[chunk.file], chunk);
  num_starts_ += source_->num_starts() - before;
  source_->forget_before(chunk.end - 1);  // the next chunk begins with that byte
  return lines;
}

}  // namespace trireme
