// usage: checkpoint_bench FOLDER MEGABYTES [REPEATS]
// Save and verified load on one rank beside a raw write + fsync and a raw read of the same bytes,
// on the same disk, interleaved. "cold": after the kernel was asked to drop the file's pages.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <vector>

#include "checkpoint/load.hpp"
#include "checkpoint/save.hpp"
#include "comm/self/self_communicator.hpp"
#include "core/file.hpp"

namespace {

using namespace trireme;
namespace fs = std::filesystem;

/// Wall seconds; the CPU seconds of this process are added to `cpu`, which other jobs on the
/// machine disturb less.
double seconds(double& cpu, const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu_begin = std::clock();
  work();
  cpu += static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void raw_write(const fs::path& path, std::span<const std::byte> bytes) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    write_all(fd.get(), bytes.subspan(at, std::min(kPiece, bytes.size() - at)), at, path);
  }
  sync_file(fd.get(), path);
}

void raw_read(const fs::path& path, std::span<std::byte> bytes) {
  const Fd fd = open_read(path);
  read_all(fd.get(), bytes, 0, path);
}

void drop_pages(const fs::path& path) {
  const Fd fd = open_read(path);
  (void)::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const fs::path folder = argv[1];
  const auto megabytes = static_cast<std::size_t>(std::atol(argv[2]));
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 5;
  constexpr std::size_t kTensor = std::size_t{16} << 20;
  std::vector<std::byte> bytes(megabytes << 20);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  StateDict state;
  for (std::size_t at = 0; at < bytes.size(); at += kTensor) {
    const std::size_t size = std::min(kTensor, bytes.size() - at);
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(size / 4096), 1024};
    state.tensors.push_back({"param/t" + std::to_string(at),
                             DType::f32,
                             shape,
                             Shard::whole(shape),
                             std::span(bytes).subspan(at, size),
                             true});
  }
  SelfCommunicator world;
  std::vector<double> save, write, load, read, warm_load, warm_read, stage;
  double cpu_write = 0, cpu_save = 0, cpu_read = 0, cpu_load = 0, cpu_warm_read = 0,
         cpu_warm_load = 0, cpu_stage = 0;
  for (int i = 0; i < repeats; ++i) {
    write.push_back(seconds(cpu_write, [&] { raw_write(folder / "raw", bytes); }));
    save.push_back(
        seconds(cpu_save, [&] { save_checkpoint(folder / "run", i, state, world, {}); }));
    const fs::path step = folder / "run" / step_folder_name(i);
    drop_pages(folder / "raw");
    read.push_back(seconds(cpu_read, [&] { raw_read(folder / "raw", bytes); }));
    drop_pages(step / "shard-00000-of-00001.h5");
    load.push_back(seconds(cpu_load, [&] { load_tensors(Checkpoint::open(step), state); }));
    warm_read.push_back(seconds(cpu_warm_read, [&] { raw_read(folder / "raw", bytes); }));
    warm_load.push_back(
        seconds(cpu_warm_load, [&] { load_tensors(Checkpoint::open(step), state); }));
    stage.push_back(seconds(
        cpu_stage, [&] { (void)stage_checkpoint(folder / "run", 1000 + i, state, world, {}); }));
    fs::remove_all(folder / "run");
    fs::remove(folder / "raw");
  }
  const auto report = [&](const char* what,
                          const std::vector<double>& ours,
                          const std::vector<double>& raw,
                          double cpu,
                          double raw_cpu) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(raw[i] / ours[i]);
    const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
    const double size = static_cast<double>(bytes.size()) / 1e6;
    std::printf(
        "%-22s %7.0f MB/s, raw %7.0f MB/s, ratio %.2f (%.2f to %.2f over %zu); CPU s per GB %.2f, "
        "raw %.2f\n",
        what,
        size / median(ours),
        size / median(raw),
        median(ratios),
        *low,
        *high,
        ours.size(),
        cpu / size / static_cast<double>(ours.size()) * 1e3,
        raw_cpu / size / static_cast<double>(ours.size()) * 1e3);
  };
  report("save", save, write, cpu_save, cpu_write);
  report("verified load, cold", load, read, cpu_load, cpu_read);
  report("verified load, cached", warm_load, warm_read, cpu_warm_load, cpu_warm_read);
  std::printf("%-22s %7.0f MB/s (copy of the state, what a step waits for)\n",
              "stage",
              static_cast<double>(bytes.size()) / 1e6 / median(stage));
  return 0;
}
