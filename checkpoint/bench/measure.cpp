#include "checkpoint/bench/measure.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>

#include "checkpoint/load/load.hpp"
#include "checkpoint/save/async_saver.hpp"
#include "checkpoint/save/save.hpp"
#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/error.hpp"
#include "core/files/directories.hpp"
#include "core/files/file.hpp"
#include "core/files/refusal.hpp"
#include "core/timer.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlockBytes = std::size_t{4} << 20;
constexpr std::uint64_t kTensorBytes = std::uint64_t{8} << 20;
constexpr double kStep_s = 0.5;  // minimum duration of the work beside an asynchronous save

double processor_seconds() {
  struct rusage usage {};

  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double maximum(comm::Communicator& world, double value) {
  return comm::all_reduce_value(world, value, comm::ReduceOp::max, "slowest rank");
}

/// Holds the state, the raw files and the directory of one measurement.
class Measurement {
 public:
  Measurement(fs::path directory, const MeasureOptions& options, comm::Communicator& world)
      : directory_(std::move(directory)), world_(world), replicated_(options.replicated) {
    const auto ranks = static_cast<std::size_t>(world.size());
    std::size_t held = 0;
    for (std::size_t at = 0, number = 0; at < options.bytes; at += kTensorBytes, ++number) {
      const bool owned = number % ranks == static_cast<std::size_t>(world.rank());
      if (!owned && !replicated_) continue;
      const std::size_t size = std::min<std::size_t>(kTensorBytes, options.bytes - at);
      tensors_.push_back({number, at, held, size, owned});
      held += size;
    }
    content_.resize(held);
    for (const HeldTensor& tensor : tensors_) {
      for (std::size_t i = 0; i < tensor.size; i += kWord) {
        const std::uint32_t value = expected(tensor.at + i);
        std::memcpy(&content_[tensor.begin + i], &value, std::min(kWord, tensor.size - i));
      }
      const std::vector<std::int64_t> shape{static_cast<std::int64_t>(tensor.size)};
      state_.tensors.push_back(
          {formatted("param/t{}", tensor.number), DType::u8, shape, parallel::Slice::whole(shape),
           std::span(content_).subspan(tensor.begin, tensor.size), tensor.owned});
    }
  }

  /// Returns the number of bytes that this rank saves.
  [[nodiscard]] std::size_t owned_bytes() const {
    std::size_t bytes = 0;
    for (const HeldTensor& tensor : tensors_) bytes += tensor.owned ? tensor.size : 0;
    return bytes;
  }

  StateDict& state() { return state_; }

  /// Runs `work` on all ranks and returns the wall time of the slowest rank in seconds. Adds the
  /// CPU time of all ranks to `cpu`. Collective.
  double time(double& cpu, const std::function<void()>& work) {
    world_.barrier();
    const double cpu_before = processor_seconds();
    const auto begin = std::chrono::steady_clock::now();
    const auto error = comm::capture(work);
    const double wall =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double used = processor_seconds() - cpu_before;
    comm::agree(world_, error);
    cpu += comm::all_reduce_value(world_, used, comm::ReduceOp::sum, "all ranks");
    return maximum(world_, wall);
  }

  [[nodiscard]] fs::path raw_path(int rank) const { return directory_ / formatted("raw-{}", rank); }

  void raw_write() {
    std::span<const std::byte> mine(content_);
    if (replicated_) {
      const auto ranks = static_cast<std::size_t>(world_.size());
      const auto rank = static_cast<std::size_t>(world_.rank());
      const std::size_t begin = content_.size() * rank / ranks;
      mine = mine.subspan(begin, content_.size() * (rank + 1) / ranks - begin);
    }
    const fs::path path = raw_path(world_.rank());
    const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd) fail_to_write("create", path, errno);
    for (std::size_t at = 0; at < mine.size(); at += kBlockBytes)
      write_all(fd.get(), mine.subspan(at, std::min(kBlockBytes, mine.size() - at)), at, path);
    sync_file(fd.get(), path);
  }

  void raw_read() {
    std::size_t at = 0;
    for (int rank = 0; rank < world_.size(); ++rank) {
      if (!replicated_ && rank != world_.rank()) continue;
      const Fd fd = open_read(raw_path(rank));
      const auto size = static_cast<std::size_t>(fs::file_size(raw_path(rank)));
      for (std::size_t done = 0; done < size; done += kBlockBytes) {
        read_all(fd.get(),
                 std::span(content_).subspan(at + done, std::min(kBlockBytes, size - done)), done,
                 raw_path(rank));
      }
      at += size;
    }
  }

  /// Asks the kernel to drop the cached pages of the files, so that the next read comes from the
  /// disk.
  void drop_pages(const fs::path& place) {
    world_.barrier();
    for (const fs::directory_entry& entry : fs::directory_iterator(place)) {
      if (!entry.is_regular_file()) continue;
      const Fd fd = open_read(entry.path());
      (void)::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    }
  }

  /// Throws Error(internal) if the loaded bytes differ from the saved bytes.
  void check_content() const {
    for (const HeldTensor& tensor : tensors_) {
      for (std::size_t i = 0; i < tensor.size; i += kWord) {
        const std::uint32_t value = expected(tensor.at + i);
        const std::byte* loaded = content_.data() + tensor.begin + i;
        if (std::memcmp(&value, loaded, std::min(kWord, tensor.size - i)) != 0)
          fail(ErrorKind::internal, "the loaded state differs from the saved one at byte {}",
               tensor.at + i);
      }
    }
  }

  void clear_content() { std::fill(content_.begin(), content_.end(), std::byte{0}); }

 private:
  static constexpr std::size_t kWord = sizeof(std::uint32_t);

  struct HeldTensor {
    std::size_t number = 0;
    std::size_t at = 0;     // position in the whole state
    std::size_t begin = 0;  // position in content_
    std::size_t size = 0;
    bool owned = false;
  };

  static std::uint32_t expected(std::size_t at) {
    return static_cast<std::uint32_t>(at * 2654435761U >> 7);
  }

  fs::path directory_;
  comm::Communicator& world_;
  bool replicated_;
  std::vector<HeldTensor> tensors_;
  std::vector<std::byte> content_;
  StateDict state_;
};

/// Computes on little memory, like a training step does. Every call does the same amount of work.
class FixedWork {
 public:
  explicit FixedWork(double seconds) {
    for (double took = 0; took < seconds;) {
      rounds_ *= 2;
      const Timer timer;
      do_it();
      took = timer.seconds();
    }
  }

  void do_it() const {
    std::array<float, 1024> values{};
    for (std::uint64_t round = 0; round < rounds_; ++round) {
      for (float& value : values) value = value * 0.5F + 1.0F;
      asm volatile("" : : "r"(values.data()) : "memory");  // NOLINT(hicpp-no-assembler): keep it
    }
  }

 private:
  std::uint64_t rounds_ = 1;
};

void measure_async(const fs::path& directory, std::int64_t step, Measurement& run,
                   comm::Communicator& world, const FixedWork& work, AsyncSaver& writer,
                   MeasuredCheckpoint& measured) {
  double cpu = 0;
  double stall_s = 0;
  const double work_s = run.time(cpu, [&] { work.do_it(); });
  const double with_save_s = run.time(cpu, [&] {
    Timer timer;
    writer.start(stage_checkpoint(directory, step, run.state(), world, {"bench", /*copy=*/false}));
    stall_s = timer.seconds();
    work.do_it();
    timer.restart();
    writer.wait_copied();
    stall_s += timer.seconds();
  });
  measured.stall_s.push_back(maximum(world, stall_s));
  measured.step_extra_s.push_back(with_save_s - work_s);
  AsyncSaver::Result result = writer.finish();
  commit_checkpoint(result.staged, result.written, world);
  writer.recycle(result.staged);
  measured.copy_bytes = writer.memory_bytes();
}

/// Throws if the disk has no space for the raw files, a checkpoint and an asynchronous checkpoint.
void check_space(const fs::path& directory, std::uint64_t bytes) {
  std::error_code code;
  const fs::space_info space = fs::space(directory, code);
  if (code || bytes <= space.available / 3) return;
  fs::remove(directory, code);
  fail(ErrorKind::resource, "{}: the benchmark writes three times {} bytes, but {} bytes are free",
       directory.string(), bytes, space.available);
}

MeasuredCheckpoint measure_in(const fs::path& directory, const MeasureOptions& options,
                              comm::Communicator& world) {
  Measurement run(directory, options, world);
  MeasuredCheckpoint measured;
  measured.ranks = world.size();
  measured.bytes = options.bytes;
  AsyncSaver writer;
  writer.reserve(run.owned_bytes());  // like a run: no save is the first to touch its memory
  const FixedWork work(kStep_s);
  writer.wait_reserved();
  const fs::path steps = directory / "checkpoints";
  for (std::int64_t step = 0; step < options.repeats; ++step) {
    const fs::path saved = steps / step_directory_name(step);
    measured.raw_write_s.push_back(run.time(measured.raw_write_cpu_s, [&] { run.raw_write(); }));
    measured.save_s.push_back(run.time(measured.save_cpu_s, [&] {
      save_checkpoint(steps, step, run.state(), world, {.run_id = "bench"});
    }));
    run.drop_pages(directory);
    measured.raw_read_s.push_back(run.time(measured.raw_read_cpu_s, [&] { run.raw_read(); }));
    run.clear_content();
    run.drop_pages(saved);
    measured.load_s.push_back(run.time(
        measured.load_cpu_s, [&] { load_tensors(Checkpoint::open(saved), run.state(), world); }));
    comm::agree(world, comm::capture([&] { run.check_content(); }));
    measure_async(directory / "behind", step, run, world, work, writer, measured);
    world.barrier();
    const bool last = step + 1 == options.repeats && options.keep_last;
    if (world.rank() == 0) {
      fs::remove_all(directory / "behind");
      if (!last) fs::remove_all(saved);
    }
  }
  for (double* cpu : {&measured.raw_write_cpu_s, &measured.save_cpu_s, &measured.raw_read_cpu_s,
                      &measured.load_cpu_s})
    *cpu /= static_cast<double>(options.repeats);
  return measured;
}

}  // namespace

MeasuredCheckpoint measure_checkpoint(const fs::path& directory, const MeasureOptions& options,
                                      comm::Communicator& world) {
  if (options.bytes == 0) fail(ErrorKind::usage, "--bytes 0, must be at least 1");
  if (options.repeats < 1 || options.repeats > 1000)
    fail(ErrorKind::usage, "--repeats {}, must be in [1, 1000]", options.repeats);
  comm::agree(
      world, comm::capture([&] {
        if (world.rank() != 0) return;
        std::error_code ignored;
        if (fs::exists(fs::symlink_status(directory, ignored)))
          fail(
              ErrorKind::usage,
              "{} exists already: name a new directory, or delete it if a bench that was interrupted has left it",
              directory.string());
        make_directories(directory);
        check_space(directory, options.bytes);
      }));
  MeasuredCheckpoint measured;
  const auto clean_up = [&] {
    if (world.rank() != 0) return;
    std::error_code ignored;
    fs::remove_all(directory, ignored);
  };
  try {
    measured = measure_in(directory, options, world);
  } catch (...) {
    clean_up();  // otherwise a full disk stays full
    throw;
  }
  world.barrier();
  if (!options.keep_last) clean_up();
  return measured;
}

}  // namespace trireme::checkpoint
