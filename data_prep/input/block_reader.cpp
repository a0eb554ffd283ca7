#include "data_prep/input/block_reader.hpp"

#include "core/error.hpp"

namespace trireme {

BlockReader::BlockReader(const std::vector<InputFile>& files, int num_workers)
    : files_(files), workers_(static_cast<std::size_t>(num_workers)) {}

void BlockReader::start(std::vector<ByteRange> blocks) {
  blocks_ = std::move(blocks);
  turns_.clear();
  std::size_t compressed = 0;
  for (const ByteRange& block : blocks_) {
    turns_.push_back(compressed);
    if (files_[block.file].compression != Compression::none) ++compressed;
  }
  next_turn_ = 0;
  failed_ = false;
}

LineBlock BlockReader::read(std::size_t i, int worker) {
  const ByteRange& block = blocks_[i];
  if (files_[block.file].compression == Compression::none)
    return read_plain(block, workers_[static_cast<std::size_t>(worker)]);
  std::unique_lock lock(mutex_);
  turn_.wait(lock, [&] { return failed_ || next_turn_ == turns_[i]; });
  if (failed_) fail(ErrorKind::data, "{}: reading has failed", files_[block.file].path.string());
  try {
    LineBlock lines = read_compressed(block);
    ++next_turn_;
    turn_.notify_all();
    return lines;
  } catch (...) {
    failed_ = true;
    turn_.notify_all();
    throw;
  }
}

LineBlock BlockReader::read_plain(const ByteRange& block, Worker& worker) const {
  if (!worker.source || worker.file != block.file) {
    worker.source = std::make_unique<FileSource>(files_[block.file]);
    worker.file = block.file;
  }
  return {*worker.source, files_[block.file], block};
}

LineBlock BlockReader::read_compressed(const ByteRange& block) {
  if (!source_ || source_file_ != block.file) {
    source_ = std::make_unique<CompressedSource>(files_[block.file]);
    source_file_ = block.file;
  }
  const std::uint64_t before = source_->num_starts();
  LineBlock lines(*source_, files_[block.file], block);
  num_starts_ += source_->num_starts() - before;
  source_->forget_before(block.end - 1);  // the next block begins with that byte
  return lines;
}

}  // namespace trireme
