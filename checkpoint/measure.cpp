#include "checkpoint/measure.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>

#include "checkpoint/agree.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/save.hpp"
#include "checkpoint/write_behind.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/folders.hpp"
#include "core/refusal.hpp"
#include "core/timer.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kTensorBytes = std::uint64_t{8} << 20;
constexpr double kStep_s = 0.5;  // at least: of the work beside a save behind training

double processor_seconds() {
  struct rusage usage {};

  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double maximum(Communicator& world, double value) {
  world.all_reduce(&value, &value, 1, DType::f64, ReduceOp::max, {}, "slowest rank")->wait();
  return value;
}

double sum(Communicator& world, double value) {
  world.all_reduce(&value, &value, 1, DType::f64, ReduceOp::sum, {}, "all ranks")->wait();
  return value;
}

/// The state, its raw files and the folder of one measurement.
class Measurement {
 public:
  Measurement(fs::path folder, std::uint64_t bytes, Communicator& world)
      : folder_(std::move(folder)), world_(world) {
    content_.resize(static_cast<std::size_t>(bytes));
    for (std::size_t i = 0; i < content_.size(); i += kWord) {
      const std::uint32_t value = expected(i);
      std::memcpy(content_.data() + i, &value, std::min(kWord, content_.size() - i));
    }
    const auto ranks = static_cast<std::size_t>(world.size());
    std::size_t number = 0;
    for (std::size_t at = 0; at < content_.size(); at += kTensorBytes, ++number) {
      const std::size_t size = std::min<std::size_t>(kTensorBytes, content_.size() - at);
      const std::vector<std::int64_t> shape{static_cast<std::int64_t>(size)};
      state_.tensors.push_back({cat("param/t", number),
                                DType::u8,
                                shape,
                                Shard::whole(shape),
                                std::span(content_).subspan(at, size),
                                number % ranks == static_cast<std::size_t>(world.rank())});
    }
  }

  [[nodiscard]] std::uint64_t bytes() const { return content_.size(); }

  StateDict& state() { return state_; }

  /// All ranks together; the slowest one's seconds. The processor seconds of all are added to
  /// `cpu`.
  double time(double& cpu, const std::function<void()>& work) {
    world_.barrier();
    const double cpu_before = processor_seconds();
    const auto begin = std::chrono::steady_clock::now();
    const auto error = capture(work);
    const double wall =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double used = processor_seconds() - cpu_before;
    agree(world_, error);
    cpu += sum(world_, used);
    return maximum(world_, wall);
  }

  [[nodiscard]] fs::path raw_path(int rank) const { return folder_ / cat("raw-", rank); }

  void raw_write() {
    const auto ranks = static_cast<std::size_t>(world_.size());
    const std::size_t begin = content_.size() * static_cast<std::size_t>(world_.rank()) / ranks;
    const std::size_t end = content_.size() * (static_cast<std::size_t>(world_.rank()) + 1) / ranks;
    const auto mine = std::span<const std::byte>(content_).subspan(begin, end - begin);
    const fs::path path = raw_path(world_.rank());
    const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd) fail_to_write("create", path, errno);
    constexpr std::size_t kPiece = std::size_t{4} << 20;
    for (std::size_t at = 0; at < mine.size(); at += kPiece)
      write_all(fd.get(), mine.subspan(at, std::min(kPiece, mine.size() - at)), at, path);
    sync_file(fd.get(), path);
  }

  void raw_read() {
    std::size_t at = 0;
    for (int rank = 0; rank < world_.size(); ++rank) {
      const Fd fd = open_read(raw_path(rank));
      const auto size = static_cast<std::size_t>(fs::file_size(raw_path(rank)));
      constexpr std::size_t kPiece = std::size_t{4} << 20;
      for (std::size_t done = 0; done < size; done += kPiece) {
        read_all(fd.get(),
                 std::span(content_).subspan(at + done, std::min(kPiece, size - done)),
                 done,
                 raw_path(rank));
      }
      at += size;
    }
  }

  /// Asks the kernel to forget the files: what follows reads from the disk.
  void drop_pages(const fs::path& place) {
    world_.barrier();
    for (const fs::directory_entry& entry : fs::directory_iterator(place)) {
      if (!entry.is_regular_file()) continue;
      const Fd fd = open_read(entry.path());
      (void)::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    }
  }

  /// What was loaded is what was saved.
  void check_content() const {
    for (std::size_t i = 0; i < content_.size(); i += kWord) {
      const std::uint32_t value = expected(i);
      if (std::memcmp(&value, content_.data() + i, std::min(kWord, content_.size() - i)) != 0)
        fail(ErrorKind::internal, "the loaded state differs from the saved one at byte ", i);
    }
  }

  void clear_content() { std::fill(content_.begin(), content_.end(), std::byte{0}); }

 private:
  static constexpr std::size_t kWord = sizeof(std::uint32_t);

  static std::uint32_t expected(std::size_t at) {
    return static_cast<std::uint32_t>(at * 2654435761U >> 7);
  }

  fs::path folder_;
  Communicator& world_;
  std::vector<std::byte> content_;
  StateDict state_;
};

/// Arithmetic on little memory, as a step does it: the same amount at every call.
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

void measure_async(const fs::path& folder,
                   std::int64_t step,
                   Measurement& run,
                   Communicator& world,
                   const FixedWork& work,
                   WriteBehind& writer,
                   MeasuredCheckpoint& measured) {
  double cpu = 0;
  double stall_s = 0;
  const double work_s = run.time(cpu, [&] { work.do_it(); });
  const double with_save_s = run.time(cpu, [&] {
    Timer timer;
    writer.start(stage_checkpoint(folder, step, run.state(), world, {"bench", /*copy=*/false}));
    stall_s = timer.seconds();
    work.do_it();
    timer.restart();
    writer.wait_copied();
    stall_s += timer.seconds();
  });
  measured.stall_s.push_back(maximum(world, stall_s));
  measured.step_extra_s.push_back(with_save_s - work_s);
  WriteBehind::Result result = writer.finish();
  commit_checkpoint(result.staged, result.written, world);
  writer.recycle(result.staged);
  measured.copy_bytes = writer.memory_bytes();
}

/// Raw files, a checkpoint, and one behind training lie there at once.
void check_space(const fs::path& folder, std::uint64_t bytes) {
  std::error_code code;
  const fs::space_info space = fs::space(folder, code);
  if (code || bytes <= space.available / 3) return;
  fs::remove(folder, code);
  fail(ErrorKind::resource,
       folder.string(),
       ": three times ",
       bytes,
       " bytes are written there, ",
       space.available,
       " are free");
}

MeasuredCheckpoint measure_in(const fs::path& folder,
                              const MeasureOptions& options,
                              Communicator& world) {
  Measurement run(folder, options.bytes, world);
  MeasuredCheckpoint measured;
  measured.ranks = world.size();
  measured.bytes = run.bytes();
  WriteBehind writer;
  const FixedWork work(kStep_s);
  const fs::path steps = folder / "checkpoints";
  for (std::int64_t step = 0; step < options.repeats; ++step) {
    const fs::path saved = steps / step_folder_name(step);
    measured.raw_write_s.push_back(run.time(measured.raw_write_cpu_s, [&] { run.raw_write(); }));
    measured.save_s.push_back(run.time(measured.save_cpu_s, [&] {
      save_checkpoint(steps, step, run.state(), world, {.run_id = "bench"});
    }));
    run.drop_pages(folder);
    measured.raw_read_s.push_back(run.time(measured.raw_read_cpu_s, [&] { run.raw_read(); }));
    run.clear_content();
    run.drop_pages(saved);
    measured.load_s.push_back(run.time(
        measured.load_cpu_s, [&] { load_tensors(Checkpoint::open(saved), run.state(), world); }));
    agree(world, capture([&] { run.check_content(); }));
    measure_async(folder / "behind", step, run, world, work, writer, measured);
    world.barrier();
    const bool last = step + 1 == options.repeats && options.keep_last;
    if (world.rank() == 0) {
      fs::remove_all(folder / "behind");
      if (!last) fs::remove_all(saved);
    }
  }
  for (double* cpu : {&measured.raw_write_cpu_s,
                      &measured.save_cpu_s,
                      &measured.raw_read_cpu_s,
                      &measured.load_cpu_s})
    *cpu /= static_cast<double>(options.repeats);
  return measured;
}

}  // namespace

MeasuredCheckpoint measure_checkpoint(const fs::path& folder,
                                      const MeasureOptions& options,
                                      Communicator& world) {
  if (options.bytes == 0) fail(ErrorKind::usage, "--bytes 0, must be at least 1");
  if (options.repeats < 1 || options.repeats > 1000)
    fail(ErrorKind::usage, "--repeats ", options.repeats, ", must be in [1, 1000]");
  agree(world, capture([&] {
          if (world.rank() != 0) return;
          std::error_code ignored;
          if (fs::exists(fs::symlink_status(folder, ignored)))
            fail(ErrorKind::usage, folder.string(), " exists already; name a new folder");
          make_folders(folder);
          check_space(folder, options.bytes);
        }));
  MeasuredCheckpoint measured;
  const auto clean_up = [&] {
    if (world.rank() != 0) return;
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  };
  try {
    measured = measure_in(folder, options, world);
  } catch (...) {
    clean_up();  // a full disk would stay full
    throw;
  }
  world.barrier();
  if (!options.keep_last) clean_up();
  return measured;
}

}  // namespace trireme
