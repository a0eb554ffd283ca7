// usage: checkpoint_bench FOLDER MEGABYTES [REPEATS]
// Save and verified load on one rank beside a raw write + fsync and a raw read of the same bytes,
// on the same disk, interleaved. "cold": after the kernel was asked to drop the file's pages.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
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

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
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
  for (int i = 0; i < repeats; ++i) {
    write.push_back(seconds([&] { raw_write(folder / "raw", bytes); }));
    save.push_back(seconds([&] { save_checkpoint(folder / "run", i, state, world, {}); }));
    const fs::path step = folder / "run" / step_folder_name(i);
    drop_pages(folder / "raw");
    read.push_back(seconds([&] { raw_read(folder / "raw", bytes); }));
    drop_pages(step / "shard-00000-of-00001.h5");
    load.push_back(seconds([&] { load_tensors(Checkpoint::open(step), state); }));
    warm_read.push_back(seconds([&] { raw_read(folder / "raw", bytes); }));
    warm_load.push_back(seconds([&] { load_tensors(Checkpoint::open(step), state); }));
    stage.push_back(
        seconds([&] { (void)stage_checkpoint(folder / "run", 1000 + i, state, world, {}); }));
    fs::remove_all(folder / "run");
    fs::remove(folder / "raw");
  }
  const auto report =
      [&](const char* what, const std::vector<double>& ours, const std::vector<double>& raw) {
        std::vector<double> ratios;
        for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(raw[i] / ours[i]);
        const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
        const double size = static_cast<double>(bytes.size()) / 1e6;
        std::printf("%-22s %7.0f MB/s, raw %7.0f MB/s, ratio %.2f (%.2f to %.2f over %zu)\n",
                    what,
                    size / median(ours),
                    size / median(raw),
                    median(ratios),
                    *low,
                    *high,
                    ours.size());
      };
  report("save", save, write);
  report("verified load, cold", load, read);
  report("verified load, cached", warm_load, warm_read);
  std::printf("%-22s %7.0f MB/s (copy of the state, what a step waits for)\n",
              "stage",
              static_cast<double>(bytes.size()) / 1e6 / median(stage));
  return 0;
}
