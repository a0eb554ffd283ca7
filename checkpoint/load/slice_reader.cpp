#include "checkpoint/load/slice_reader.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "checkpoint/disk/disk_reader.hpp"
#include "core/error.hpp"
#include "core/hash/crc32c.hpp"
#include "core/hash/xxh3.hpp"
#include "core/progress.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{4} << 20;  // a multiple of every element size
constexpr std::uint64_t kSkip = std::uint64_t{256}
                                << 10;  // a gap that is cheaper to read than to skip
constexpr std::size_t kChunk = std::size_t{128} << 10;  // checked and copied while in the CPU cache
constexpr std::size_t kThreads = 4;                     // they wait for the disk most of the time

/// The runs of one target within a slice, ascending in both.
struct WantedRuns {
  std::vector<parallel::SliceRun> runs;
  std::span<std::byte> bytes;
};

/// A job with its runs and the checksums of its blocks.
struct Task {
  const SliceJob* job = nullptr;
  std::uint64_t bytes = 0;
  std::vector<WantedRuns> wanted;
  std::vector<std::uint32_t>
      checksums;  // one per block of kBlockBytes bytes (the last may be shorter)
};

struct TaskPart {
  Task* task = nullptr;
  std::uint64_t begin = 0;  // byte position in the slice
  std::uint64_t bytes = 0;
};

/// One read of a thread: neighboring parts of one file.
struct DiskRead {
  std::uint64_t shard = 0;
  std::uint64_t at = 0;
  std::uint64_t bytes = 0;
  std::vector<TaskPart> parts;
};

/// Copies the requested elements of `block`, which holds slice elements from `begin` on.
void scatter(const WantedRuns& wanted, std::span<const std::byte> block, std::int64_t begin,
             std::size_t element) {
  const std::int64_t end = begin + static_cast<std::int64_t>(block.size() / element);
  auto run = std::partition_point(wanted.runs.begin(), wanted.runs.end(),
                                  [&](const parallel::SliceRun& candidate) {
                                    return candidate.source_index + candidate.count <= begin;
                                  });
  for (; run != wanted.runs.end() && run->source_index < end; ++run) {
    const std::int64_t from = std::max(begin, run->source_index);
    const std::int64_t to = std::min(end, run->source_index + run->count);
    const auto at = static_cast<std::size_t>(run->target_index + from - run->source_index);
    std::memcpy(wanted.bytes.data() + at * element,
                block.data() + static_cast<std::size_t>(from - begin) * element,
                static_cast<std::size_t>(to - from) * element);
  }
}

/// Checks and copies one part in chunks that fit the CPU cache.
void take(const TaskPart& part, std::span<const std::byte> bytes) {
  Task& task = *part.task;
  const std::size_t element = size_of(task.job->tensor->dtype);
  std::uint32_t checksum = 0;
  for (std::size_t done = 0; done < bytes.size(); done += kChunk) {
    const auto chunk = bytes.subspan(done, std::min(kChunk, bytes.size() - done));
    checksum = crc32c(chunk, checksum);
    for (const WantedRuns& wanted : task.wanted)
      scatter(wanted, chunk, static_cast<std::int64_t>((part.begin + done) / element), element);
  }
  task.checksums[static_cast<std::size_t>(part.begin / kBlockBytes)] = checksum;
}

void check_hash(const SliceJob& job, const std::string& computed,
                const std::filesystem::path& file) {
  if (computed == job.slice->hash) return;
  fail(ErrorKind::data, "{}: tensor {} is damaged: its checksum is {}, the manifest says {}",
       file.string(), *job.name, computed, job.slice->hash);
}

std::string joined_checksum(const Task& task) {
  std::uint32_t checksum = 0;
  std::uint64_t left = task.bytes;
  for (const std::uint32_t block : task.checksums) {
    const std::uint64_t bytes = std::min(kBlockBytes, left);
    checksum = crc32c_join(checksum, block, bytes);
    left -= bytes;
  }
  return crc32c_hex(checksum);
}

/// Reads an old slice with a hash that cannot be joined from blocks: one block after another.
void read_in_order(const DiskReader& reader, const Task& task) {
  const std::size_t element = size_of(task.job->tensor->dtype);
  AlignedBuffer buffer;
  Hasher hasher;
  for (std::uint64_t done = 0; done < task.bytes; done += kBlockBytes) {
    const auto size = static_cast<std::size_t>(std::min(kBlockBytes, task.bytes - done));
    const auto block = reader.read(task.job->slice->at + done, size, buffer);
    hasher.update(block);
    for (const WantedRuns& wanted : task.wanted)
      scatter(wanted, block, static_cast<std::int64_t>(done / element), element);
  }
  check_hash(*task.job, hasher.hex(), reader.path());
}

/// Plans reads of the tasks in the order of their bytes, one file after another.
std::vector<DiskRead> plan_reads(std::vector<Task>& tasks) {
  std::vector<DiskRead> reads;
  for (Task& task : tasks) {
    const SavedSlice& slice = *task.job->slice;
    for (std::uint64_t begin = 0; begin < task.bytes; begin += kBlockBytes) {
      const std::uint64_t bytes = std::min(kBlockBytes, task.bytes - begin);
      const std::uint64_t at = slice.at + begin;
      const bool joins = !reads.empty() && reads.back().shard == slice.shard &&
                         at >= reads.back().at + reads.back().bytes &&
                         at <= reads.back().at + reads.back().bytes + kSkip &&
                         at + bytes - reads.back().at <= kBlockBytes;
      if (!joins) reads.push_back({slice.shard, at, 0, {}});
      reads.back().parts.push_back({&task, begin, bytes});
      reads.back().bytes = at + bytes - reads.back().at;
    }
  }
  return reads;
}

/// Runs all reads on several threads and throws the error of the earliest read.
void run_reads(const std::map<std::uint64_t, DiskReader>& readers,
               const std::vector<DiskRead>& reads) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::map<std::size_t, std::exception_ptr> errors;
  double all_bytes = 0;
  for (const DiskRead& read : reads) all_bytes += static_cast<double>(read.bytes);
  Progress progress("load", all_bytes, Progress::Unit::bytes);
  const auto work = [&] {
    AlignedBuffer buffer;
    for (std::size_t i = next++; i < reads.size(); i = next++) {
      const DiskRead& read = reads[i];
      try {
        const auto bytes =
            readers.at(read.shard).read(read.at, static_cast<std::size_t>(read.bytes), buffer);
        for (const TaskPart& part : read.parts) {
          const std::uint64_t from = part.task->job->slice->at + part.begin - read.at;
          take(part,
               bytes.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(part.bytes)));
        }
        progress.add(static_cast<double>(read.bytes));
      } catch (...) {
        const std::lock_guard lock(mutex);
        errors.emplace(i, std::current_exception());
        next = reads.size();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < std::min(kThreads, reads.size()); ++i) threads.emplace_back(work);
    work();
  }
  if (!errors.empty()) std::rethrow_exception(errors.begin()->second);
}

}  // namespace

void read_slices(const std::filesystem::path& directory, const CheckpointManifest& manifest,
                 std::vector<SliceJob> jobs) {
  std::sort(jobs.begin(), jobs.end(), [](const SliceJob& a, const SliceJob& b) {
    return std::pair(a.slice->shard, a.slice->at) < std::pair(b.slice->shard, b.slice->at);
  });
  std::map<std::uint64_t, DiskReader> readers;
  std::vector<Task> tasks;
  for (const SliceJob& job : jobs) {
    Task task{&job,
              static_cast<std::uint64_t>(job.slice->part.count()) * size_of(job.tensor->dtype),
              {},
              {}};
    for (const ReadTarget& target : job.targets) {
      std::vector<parallel::SliceRun> runs =
          parallel::intersect(job.tensor->shape, job.slice->part, target.part);
      if (!runs.empty()) task.wanted.push_back({std::move(runs), target.bytes});
    }
    if (task.wanted.empty()) continue;
    const std::uint64_t shard = job.slice->shard;
    if (!readers.contains(shard)) readers.try_emplace(shard, directory, manifest.shards.at(shard));
    if (job.slice->hash.size() != kChecksumDigits) {
      read_in_order(readers.at(shard), task);
      continue;
    }
    task.checksums.resize(static_cast<std::size_t>((task.bytes + kBlockBytes - 1) / kBlockBytes));
    tasks.push_back(std::move(task));
  }
  run_reads(readers, plan_reads(tasks));
  for (const Task& task : tasks)
    check_hash(*task.job, joined_checksum(task), readers.at(task.job->slice->shard).path());
}

}  // namespace trireme::checkpoint
