#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/format/state.hpp"
#include "checkpoint/load/load.hpp"
#include "checkpoint/save/save.hpp"
#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"

namespace trireme::test {

namespace fs = std::filesystem;

/// A private directory that is removed at the end, in memory if possible, because these tests need
/// no disk.
class TempDirectory {
 public:
  TempDirectory() {
    const bool shm = ::access("/dev/shm", W_OK) == 0 && std::getenv("TMPDIR") == nullptr;
    const fs::path base = shm ? fs::path("/dev/shm") : fs::temp_directory_path();
    std::string pattern = (base / "trireme-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = pattern;
  }

  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  ~TempDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  [[nodiscard]] const fs::path& path() const { return path_; }

  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

/// Returns the message of the Error of kind `kind` that `work` throws. Fails the test if it throws
/// none or another.
inline std::string message_of(ErrorKind kind, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

inline void overwrite(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

/// Logical tensors with seeded content. Every layout is a view of them.
struct Logical {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

inline std::vector<Logical> make_logicals(unsigned seed) {
  std::vector<Logical> logicals{
      {"param/model.embed_tokens.weight", DType::f32, {11, 6}, {}},
      {"param/model.norm.weight", DType::f32, {7}, {}},
      {"optim/exp_avg/model.embed_tokens.weight", DType::f32, {11, 6}, {}},
      {"optim/step", DType::i64, {}, {}},
      {"param/experts", DType::bf16, {3, 4, 5}, {}},
      {"param/empty", DType::f64, {0, 4}, {}}};
  std::mt19937 random(seed);
  for (Logical& logical : logicals) {
    logical.bytes.resize(static_cast<std::size_t>(parallel::Slice::whole(logical.shape).count()) *
                         size_of(logical.dtype));
    for (std::byte& byte : logical.bytes) byte = static_cast<std::byte>(random() & 255U);
  }
  return logicals;
}

struct Piece {
  parallel::Slice part;
  bool owner = true;
};

/// Shards a tensor over `ranks` ranks in one of five ways (by `random`). Returns the shards of each
/// rank.
inline std::vector<std::vector<Piece>> cut(const std::vector<std::int64_t>& shape, int ranks,
                                           std::mt19937& random) {
  const auto n = static_cast<std::size_t>(ranks);
  const parallel::Slice whole = parallel::Slice::whole(shape);
  std::vector<std::vector<Piece>> pieces(n);
  const auto flat_cut = [&](const parallel::Slice& rectangle, std::size_t first,
                            std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      parallel::Slice part = rectangle;
      const std::int64_t total = rectangle.rectangle_count();
      part.flat_begin = total * static_cast<std::int64_t>(i) / static_cast<std::int64_t>(count);
      part.flat_end = total * static_cast<std::int64_t>(i + 1) / static_cast<std::int64_t>(count);
      pieces[first + i].push_back({part, true});
    }
  };
  const auto band = [&](std::size_t dim, std::size_t i, std::size_t count) {
    parallel::Slice part = whole;
    part.offset[dim] = shape[dim] * static_cast<std::int64_t>(i) / static_cast<std::int64_t>(count);
    part.extent[dim] =
        shape[dim] * static_cast<std::int64_t>(i + 1) / static_cast<std::int64_t>(count) -
        part.offset[dim];
    part.flat_end = part.rectangle_count();
    return part;
  };
  const std::size_t dim = shape.empty() ? 0 : random() % shape.size();
  const std::size_t way = shape.empty() ? random() % 2 : random() % 5;
  if (way == 0) {  // replicated, one owner
    const std::size_t owner = random() % n;
    for (std::size_t rank = 0; rank < n; ++rank) pieces[rank].push_back({whole, rank == owner});
  } else if (way == 1) {  // pipeline: one rank has it
    pieces[random() % n].push_back({whole, true});
  } else if (way == 2) {  // tensor parallel
    for (std::size_t rank = 0; rank < n; ++rank) pieces[rank].push_back({band(dim, rank, n), true});
  } else if (way == 3) {  // ZeRO
    flat_cut(whole, 0, n);
  } else {  // tensor parallel over 2, ZeRO inside
    const std::size_t half = (n + 1) / 2;
    flat_cut(band(dim, 0, 2), 0, half);
    flat_cut(band(dim, 1, 2), n - half, half);
  }
  return pieces;
}

/// One rank's state in the layout that `seed` selects, with its own storage.
struct RankState {
  checkpoint::StateDict state;
  std::vector<std::vector<std::byte>> storage;
};

inline RankState make_rank_state(const std::vector<Logical>& logicals, int rank, int ranks,
                                 unsigned seed, bool filled) {
  std::mt19937 random(seed);
  RankState result;
  result.storage.reserve(64);
  for (const Logical& logical : logicals) {
    const std::size_t element = size_of(logical.dtype);
    const auto pieces = cut(logical.shape, ranks, random);
    for (const Piece& piece : pieces[static_cast<std::size_t>(rank)]) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(piece.part.count()) * element);
      for (const parallel::SliceRun& run :
           parallel::intersect(logical.shape, parallel::Slice::whole(logical.shape), piece.part)) {
        if (!filled) break;
        std::memcpy(bytes.data() + static_cast<std::size_t>(run.target_index) * element,
                    logical.bytes.data() + static_cast<std::size_t>(run.source_index) * element,
                    static_cast<std::size_t>(run.count) * element);
      }
      result.storage.push_back(std::move(bytes));
      result.state.tensors.push_back({logical.name, logical.dtype, logical.shape, piece.part,
                                      result.storage.back(), piece.owner});
    }
  }
  result.state.values = {{"step", "1"}, {"scaler.scale", "65536"}};
  result.state.files = {{"config.toml", "[model]\npreset = \"tiny\"\n"}, {"tokenizer.json", "{}"}};
  return result;
}

inline void save_layout(const fs::path& folder, std::int64_t step,
                        const std::vector<Logical>& logicals, int ranks, unsigned layout,
                        const std::string& run_id = "run") {
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    const RankState mine = make_rank_state(logicals, world.rank(), ranks, layout, true);
    checkpoint::save_checkpoint(folder, step, mine.state, world, {.run_id = run_id});
  });
}

/// Returns the bytes of every file below `folder`, by name.
inline std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> result;
  for (const auto& entry : fs::directory_iterator(folder))
    result[entry.path().filename().string()] = read_file(entry.path());
  return result;
}

/// Returns the names of the files that differ between two directories or exist in one only. The
/// list is a shorter message than all bytes.
inline std::string differing(const fs::path& a, const fs::path& b) {
  const auto left = contents(a);
  const auto right = contents(b);
  std::string names;
  for (const auto& [name, content] : left) {
    if (!right.contains(name) || right.at(name) != content) names += name + " ";
  }
  for (const auto& [name, content] : right) {
    if (!left.contains(name)) names += name + " ";
  }
  return names;
}

}  // namespace trireme::test
