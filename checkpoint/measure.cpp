#include "checkpoint/measure.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "checkpoint/agree.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/save.hpp"
#include "checkpoint/write_behind.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kTensorBytes = std::uint64_t{8} << 20;
constexpr std::int64_t kColumns = 1024;

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
    const std::uint64_t row = kColumns * sizeof(float);
    content_.resize(static_cast<std::size_t>((bytes + row - 1) / row * row));
    for (std::size_t i = 0; i < content_.size(); i += sizeof(std::uint32_t)) {
      const auto value = static_cast<std::uint32_t>(i * 2654435761U >> 7);
      std::memcpy(content_.data() + i, &value, sizeof value);
    }
    const auto ranks = static_cast<std::size_t>(world.size());
    std::size_t number = 0;
    for (std::size_t at = 0; at < content_.size(); at += kTensorBytes, ++number) {
      const std::size_t size = std::min<std::size_t>(kTensorBytes, content_.size() - at);
      const std::vector<std::int64_t> shape{
          static_cast<std::int64_t>(size / static_cast<std::size_t>(row)), kColumns};
      state_.tensors.push_back({cat("param/t", number),
                                DType::f32,
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
    if (!fd) fail(ErrorKind::resource, "cannot create ", path.string(), ": ", std::strerror(errno));
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
    for (std::size_t i = 0; i < content_.size(); i += sizeof(std::uint32_t)) {
      std::uint32_t value = 0;
      std::memcpy(&value, content_.data() + i, sizeof value);
      if (value != static_cast<std::uint32_t>(i * 2654435761U >> 7))
        fail(ErrorKind::internal, "the loaded state differs from the saved one at byte ", i);
    }
  }

  void clear_content() { std::fill(content_.begin(), content_.end(), std::byte{0}); }

 private:
  fs::path folder_;
  Communicator& world_;
  std::vector<std::byte> content_;
  StateDict state_;
};

void measure_async(const fs::path& folder,
                   std::int64_t step,
                   Measurement& run,
                   Communicator& world,
                   WriteBehind& writer,
                   MeasuredCheckpoint& measured) {
  double cpu = 0;
  const auto begin_save = [&] {
    writer.start(stage_checkpoint(folder, step, run.state(), world, {"bench", /*copy=*/false}));
  };
  double start_s = 0;
  measured.stall_s.push_back(run.time(cpu, [&] {
    const auto begin = std::chrono::steady_clock::now();
    begin_save();
    start_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    writer.wait_copied();
  }));
  measured.start_s.push_back(maximum(world, start_s));
  WriteBehind::Result result = writer.finish();
  commit_checkpoint(result.staged, result.written, world);
  writer.recycle(result.staged);
  measured.copy_bytes = writer.memory_bytes();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// How many times faster than `raw`, repeat by repeat.
std::vector<double> ratios(const std::vector<double>& ours, const std::vector<double>& raw) {
  std::vector<double> result;
  for (std::size_t i = 0; i < ours.size(); ++i) result.push_back(raw[i] / ours[i]);
  return result;
}

double mb_per_s(const MeasuredCheckpoint& measured, const std::vector<double>& seconds) {
  return static_cast<double>(measured.bytes) / 1e6 / median(seconds);
}

std::string row(const char* name,
                const MeasuredCheckpoint& measured,
                const std::vector<double>& ours,
                const std::vector<double>& raw,
                double cpu_s,
                double raw_cpu_s) {
  const std::vector<double> factors = ratios(ours, raw);
  const auto [low, high] = std::minmax_element(factors.begin(), factors.end());
  const double gb = static_cast<double>(measured.bytes) / 1e9;
  std::array<char, 256> text{};
  std::snprintf(text.data(),
                text.size(),
                "%-20s %7.0f MB/s, raw %7.0f MB/s, ratio %.2f (%.2f to %.2f); processor s/GB %.2f, "
                "raw %.2f\n",
                name,
                mb_per_s(measured, ours),
                mb_per_s(measured, raw),
                median(factors),
                *low,
                *high,
                cpu_s / gb,
                raw_cpu_s / gb);
  return text.data();
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
          std::error_code code;
          if (fs::exists(fs::symlink_status(folder)))
            fail(ErrorKind::usage, folder.string(), " exists already; name a new folder");
          fs::create_directories(folder, code);
          if (code)
            fail(ErrorKind::resource, "cannot create ", folder.string(), ": ", code.message());
        }));
  Measurement run(folder, options.bytes, world);
  MeasuredCheckpoint measured;
  measured.ranks = world.size();
  measured.bytes = run.bytes();
  WriteBehind writer;
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
    measure_async(folder / "behind", step, run, world, writer, measured);
    world.barrier();
    const bool last = step + 1 == options.repeats && options.keep_last;
    if (world.rank() == 0) {
      fs::remove_all(folder / "behind");
      if (!last) fs::remove_all(saved);
    }
  }
  if (!options.keep_last) {
    world.barrier();
    if (world.rank() == 0) fs::remove_all(folder);
  }
  for (double* cpu : {&measured.raw_write_cpu_s,
                      &measured.save_cpu_s,
                      &measured.raw_read_cpu_s,
                      &measured.load_cpu_s})
    *cpu /= static_cast<double>(options.repeats);
  return measured;
}

std::string measured_text(const MeasuredCheckpoint& measured) {
  std::array<char, 256> text{};
  std::snprintf(text.data(),
                text.size(),
                "%.0f MB on %d ranks, median of %zu\n",
                static_cast<double>(measured.bytes) / 1e6,
                measured.ranks,
                measured.save_s.size());
  std::string result = text.data();
  result += row("save",
                measured,
                measured.save_s,
                measured.raw_write_s,
                measured.save_cpu_s,
                measured.raw_write_cpu_s);
  result += row("verified load, cold",
                measured,
                measured.load_s,
                measured.raw_read_s,
                measured.load_cpu_s,
                measured.raw_read_cpu_s);
  std::snprintf(text.data(),
                text.size(),
                "%-20s %.4f s until all is copied, %.4f s where the copy overlaps the next step; "
                "memory kept %.0f MB a rank\n",
                "stall behind",
                median(measured.stall_s),
                median(measured.start_s),
                static_cast<double>(measured.copy_bytes) / 1e6);
  return result + text.data();
}

std::string measured_json(const MeasuredCheckpoint& measured) {
  Json json;
  json["bytes"] = measured.bytes;
  json["ranks"] = measured.ranks;
  json["repeats"] = measured.save_s.size();
  json["save_mb_per_s"] = mb_per_s(measured, measured.save_s);
  json["raw_write_mb_per_s"] = mb_per_s(measured, measured.raw_write_s);
  json["save_to_raw"] = median(ratios(measured.save_s, measured.raw_write_s));
  json["load_mb_per_s"] = mb_per_s(measured, measured.load_s);
  json["raw_read_mb_per_s"] = mb_per_s(measured, measured.raw_read_s);
  json["load_to_raw"] = median(ratios(measured.load_s, measured.raw_read_s));
  json["stall_s"] = median(measured.stall_s);
  json["stall_overlapped_s"] = median(measured.start_s);
  json["copy_bytes"] = measured.copy_bytes;
  json["save_cpu_s"] = measured.save_cpu_s;
  json["raw_write_cpu_s"] = measured.raw_write_cpu_s;
  json["load_cpu_s"] = measured.load_cpu_s;
  json["raw_read_cpu_s"] = measured.raw_read_cpu_s;
  json["save_s"] = measured.save_s;
  json["raw_write_s"] = measured.raw_write_s;
  json["load_s"] = measured.load_s;
  json["raw_read_s"] = measured.raw_read_s;
  json["all_stall_s"] = measured.stall_s;
  return json.dump(2) + "\n";
}

}  // namespace trireme
