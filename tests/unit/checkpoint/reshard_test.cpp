#include "checkpoint/maintenance/reshard.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/maintenance/diff.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "support/sanitized.hpp"
#include "unit/checkpoint/one_rank.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

/// The sizes of the mesh. tp is the fastest axis and pp the slowest; ep folds over cp and dp; zero
/// shards the optimizer state over both.
struct Grid {
  int tp = 1;
  int cp = 1;
  int dp = 1;
  int pp = 1;
  int ep = 1;
  bool zero = false;

  [[nodiscard]] int ranks() const { return tp * cp * dp * pp; }

  [[nodiscard]] std::string name() const {
    return formatted("tp{} cp{} dp{} pp{} ep{}{}", tp, cp, dp, pp, ep, zero ? " zero" : "");
  }
};

constexpr Grid kGrids[] = {{},
                           {.dp = 3},
                           {.dp = 4, .zero = true},
                           {.tp = 2},
                           {.tp = 4},
                           {.tp = 2, .dp = 2, .zero = true},
                           {.pp = 2},
                           {.dp = 2, .pp = 3},
                           {.cp = 2, .dp = 2},
                           {.cp = 2, .dp = 2, .zero = true},
                           {.dp = 4, .ep = 2},
                           {.dp = 2, .ep = 2, .zero = true},
                           {.tp = 2, .cp = 2, .pp = 2, .ep = 2, .zero = true},
                           {.tp = 2, .dp = 2, .pp = 2, .ep = 2}};

/// The sharding of a parameter of a small mixture-of-experts model, like in the registry of a
/// trainer.
struct Parameter {
  const char* name;
  DType dtype;
  std::vector<std::int64_t> shape;
  int tp_dim;  // -1: replicated over tp
  int ep_dim;  // -1: not an expert
  int layer;   // -1: on the first stage; -2: on the last
};

const Parameter kParameters[] = {
    {"model.embed_tokens.weight", DType::f32, {13, 6}, 0, -1, -1},  // 13: not divisible by tp
    {"model.layers.0.q_proj.weight", DType::f32, {8, 6}, 0, -1, 0},
    {"model.layers.0.o_proj.weight", DType::f32, {6, 8}, 1, -1, 0},
    {"model.layers.0.norm.weight", DType::f32, {6}, -1, -1, 0},
    {"model.layers.1.experts", DType::bf16, {4, 6, 8}, 2, 0, 1},
    {"model.layers.2.q_proj.weight", DType::f32, {8, 6}, 0, -1, 2},
    {"model.norm.weight", DType::f32, {6}, -1, -1, -2}};

std::vector<Logical> make_model(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Logical> logicals;
  const auto add = [&](const std::string& name, DType dtype,
                       const std::vector<std::int64_t>& shape) {
    Logical logical{name, dtype, shape, {}};
    logical.bytes.resize(static_cast<std::size_t>(parallel::Slice::whole(shape).count()) *
                         size_of(dtype));
    for (std::byte& byte : logical.bytes) byte = static_cast<std::byte>(random() & 255U);
    logicals.push_back(std::move(logical));
  };
  for (const Parameter& parameter : kParameters) {
    add(formatted("param/{}", parameter.name), parameter.dtype, parameter.shape);
    add(formatted("optim/exp_avg/{}", parameter.name), DType::f32, parameter.shape);
  }
  return logicals;
}

/// Returns the element range of part i of n.
std::pair<std::int64_t, std::int64_t> range(std::int64_t size, int i, int n) {
  return {size * i / n, size * (i + 1) / n};
}

void cut_dim(parallel::Slice& slice, int dim, int i, int n) {
  if (dim < 0) return;
  const auto d = static_cast<std::size_t>(dim);
  const auto [begin, end] = range(slice.extent[d], i, n);
  slice.offset[d] += begin;
  slice.extent[d] = end - begin;
}

RankState rank_state(const std::vector<Logical>& logicals, const Grid& grid, int rank,
                     bool filled) {
  const int tp = rank % grid.tp;
  const int cp = rank / grid.tp % grid.cp;
  const int dp = rank / grid.tp / grid.cp % grid.dp;
  const int pp = rank / grid.tp / grid.cp / grid.dp;
  const int data = cp + grid.cp * dp;  // replicas of a dense parameter
  const int num_data = grid.cp * grid.dp;
  RankState result;
  result.storage.reserve(64);
  for (std::size_t i = 0; i < logicals.size(); ++i) {
    const Parameter& parameter = kParameters[i / 2];
    const bool is_moment = i % 2 == 1;
    const int stage = parameter.layer == -1   ? 0
                      : parameter.layer == -2 ? grid.pp - 1
                                              : parameter.layer * grid.pp / 3;
    if (stage != pp) continue;
    parallel::Slice part = parallel::Slice::whole(parameter.shape);
    cut_dim(part, parameter.tp_dim, tp, grid.tp);
    int replica = data;
    int num_replicas = num_data;
    if (parameter.ep_dim >= 0) {
      cut_dim(part, parameter.ep_dim, data % grid.ep, grid.ep);
      replica = data / grid.ep;
      num_replicas = num_data / grid.ep;
    }
    part.flat_end = part.rectangle_count();
    bool owner = parameter.tp_dim >= 0 || tp == 0;
    if (grid.zero && is_moment) {
      const auto [begin, end] = range(part.rectangle_count(), replica, num_replicas);
      part.flat_begin = begin;
      part.flat_end = end;
    } else {
      // Each replica is written by one rank.
      owner = owner && replica == static_cast<int>(i) % num_replicas;
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(part.count()) *
                                 size_of(logicals[i].dtype));
    const std::size_t element = size_of(logicals[i].dtype);
    for (const parallel::SliceRun& run :
         parallel::intersect(parameter.shape, parallel::Slice::whole(parameter.shape), part)) {
      if (!filled) break;
      std::memcpy(bytes.data() + static_cast<std::size_t>(run.target_index) * element,
                  logicals[i].bytes.data() + static_cast<std::size_t>(run.source_index) * element,
                  static_cast<std::size_t>(run.count) * element);
    }
    result.storage.push_back(std::move(bytes));
    result.state.tensors.push_back(
        {logicals[i].name, logicals[i].dtype, parameter.shape, part, result.storage.back(), owner});
  }
  result.state.values = {{"step", "7"}};
  result.state.files = {{"config.toml", "[model]\n"}};
  return result;
}

void save_grid(const fs::path& folder, const std::vector<Logical>& logicals, const Grid& grid) {
  comm::run_ranks(grid.ranks(), [&](comm::Communicator& world) {
    const RankState mine = rank_state(logicals, grid, world.rank(), true);
    save_checkpoint(folder, 7, mine.state, world, {.run_id = "run"});
  });
}

/// Loads a checkpoint into a grid, checks every byte on every rank, and saves it from there.
void move_to_grid(const fs::path& from, const fs::path& folder,
                  const std::vector<Logical>& logicals, const Grid& grid) {
  comm::run_ranks(grid.ranks(), [&](comm::Communicator& world) {
    RankState mine = rank_state(logicals, grid, world.rank(), false);
    load_tensors(Checkpoint::open(from), mine.state, world);
    EXPECT_EQ(mine.storage, rank_state(logicals, grid, world.rank(), true).storage);
    save_checkpoint(folder, 7, mine.state, world, {.run_id = "run"});
  });
}

constexpr const char* kStep = "step-000000007";

TEST(Reshard, EveryPairOfLayoutsThereAndBackKeepsEveryByte) {
  const std::vector<Logical> logicals = make_model(1);
  static_assert(std::size(kGrids) >= 12);
  std::string hash;
  for (const Grid& a : kGrids) {
    const TempDirectory home;
    save_grid(home.path(), logicals, a);
    const std::string here = hash_alone(Checkpoint::open(home / kStep));
    EXPECT_TRUE(hash.empty() || hash == here) << a.name();
    hash = here;
    for (const Grid& b : kGrids) {
      if (kSanitized && (&a - kGrids + 2 * (&b - kGrids)) % 4 != 0) continue;
      SCOPED_TRACE(a.name() + " to " + b.name());
      const TempDirectory away;
      move_to_grid(home / kStep, away / "b", logicals, b);
      EXPECT_EQ(hash_alone(Checkpoint::open(away / "b" / kStep)), hash);
      move_to_grid(away / "b" / kStep, away / "a", logicals, a);
      EXPECT_EQ(differing(home / kStep, away / "a" / kStep), "");
    }
  }
}

TEST(Reshard, OfflineToAnyNumberOfRanksIsBalancedAndTheSameState) {
  const std::vector<Logical> logicals = make_model(2);
  const TempDirectory folder;
  save_grid(folder.path(), logicals, kGrids[12]);
  const Checkpoint from = Checkpoint::open(folder / kStep);
  for (const int ranks : {1, 2, 5, 100}) {
    const fs::path to = folder.path() / formatted("n{}", ranks);
    const ReshardLayout layout = spread_layout(from.manifest(), ranks);
    const Checkpoint moved = verify_checkpoint(reshard_alone(from, layout, to));
    EXPECT_EQ(hash_alone(moved), hash_alone(from));
    EXPECT_EQ(checkpoint_differences(from, moved), "");
    EXPECT_EQ(moved.manifest().shards.size(), static_cast<std::size_t>(ranks));
    std::vector<std::uint64_t> bytes(static_cast<std::size_t>(ranks));
    for (const auto& [name, slices] : layout.tensors) {
      for (const ReshardLayout::RankSlice& slice : slices)
        bytes[static_cast<std::size_t>(slice.rank)] +=
            static_cast<std::uint64_t>(slice.part.count()) *
            size_of(from.manifest().tensors.at(name).dtype);
    }
    const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
    EXPECT_TRUE(ranks == 100 || *most - *least <= 8) << ranks;
  }
}

ReshardLayout layout_in(const fs::path& file, const CheckpointManifest& manifest) {
  return parse_layout(read_file(file), file.string(), manifest);
}

TEST(Reshard, OfflineByDescriptionThereAndBack) {
  const std::vector<Logical> logicals = make_model(3);
  const TempDirectory folder;
  for (const Grid& grid : kGrids) {
    SCOPED_TRACE(grid.name());
    const fs::path a = folder / "a";
    save_grid(a, logicals, grid);
    const Checkpoint from = Checkpoint::open(a / kStep);
    overwrite(folder / "layout.json", layout_text(from.manifest()));
    const Checkpoint away =
        Checkpoint::open(reshard_alone(from, spread_layout(from.manifest(), 3), folder / "b"));
    const Checkpoint back = Checkpoint::open(
        reshard_alone(away, layout_in(folder / "layout.json", away.manifest()), folder / "c"));
    EXPECT_EQ(layout_text(back.manifest()), layout_text(from.manifest()));
    EXPECT_EQ(checkpoint_differences(from, back), "");
    for (const char* name : {"a", "b", "c"}) fs::remove_all(folder / name);
  }
}

TEST(Reshard, ADescriptionThatIsWrongIsRefused) {
  const TempDirectory folder;
  save_grid(folder.path(), make_model(4), kGrids[0]);
  const CheckpointManifest manifest = Checkpoint::open(folder / kStep).manifest();
  const auto refused = [&](ErrorKind kind, const std::string& text) {
    overwrite(folder / "layout.json", text);
    return message_of(kind, [&] { layout_in(folder / "layout.json", manifest); });
  };
  const auto norm = [](const std::string& slices) {
    return "{\"ranks\": 2, \"tensors\": {\"param/model.norm.weight\": " + slices + "}}";
  };
  EXPECT_NE(refused(ErrorKind::data, "{").find("layout.json"), std::string::npos);
  refused(ErrorKind::data, "{}");
  refused(ErrorKind::usage, "{\"ranks\": 0}");
  refused(ErrorKind::usage, "{\"ranks\": 2, \"tensors\": {\"param/x\": []}}");
  refused(ErrorKind::data, norm("7"));
  refused(ErrorKind::usage, norm("[]"));
  refused(ErrorKind::usage, norm("[{\"rank\": 2, \"offset\": [0], \"extent\": [6]}]"));
  refused(ErrorKind::usage, norm("[{\"rank\": 0, \"offset\": [0], \"extent\": [5]}]"));
  refused(ErrorKind::usage, norm("[{\"rank\": 0, \"offset\": [1], \"extent\": [6]}]"));
  refused(ErrorKind::data, norm("[{\"rank\": 0, \"offset\": [-1], \"extent\": [6]}]"));
  const std::string twice = refused(
      ErrorKind::usage,
      norm("[{\"rank\": 0, \"offset\": [0], \"extent\": [6]}, {\"rank\": 1, \"offset\": [0], "
           "\"extent\": [6]}]"));
  EXPECT_NE(twice.find("exactly once"), std::string::npos) << twice;
}

TEST(Diff, NamesWhatDiffers) {
  const TempDirectory folder;
  const std::vector<Logical> logicals = make_model(5);
  save_grid(folder / "a", logicals, kGrids[3]);
  std::vector<Logical> other = logicals;
  const std::vector<float> norm{1, 2, 3, 4, 5, 6};
  const std::vector<float> moved{1, 2, 3, 4, 5, 6.5F};
  const auto set = [](Logical& logical, const std::vector<float>& values) {
    std::memcpy(logical.bytes.data(), values.data(), logical.bytes.size());
  };
  std::vector<Logical> first = logicals;
  set(first[12], norm);
  set(other[12], moved);
  save_grid(folder / "b", first, kGrids[3]);
  save_grid(folder / "c", other, kGrids[8]);

  const std::string text = checkpoint_differences(Checkpoint::open(folder / "b" / kStep),
                                                  Checkpoint::open(folder / "c" / kStep));

  EXPECT_EQ(text, "tensor param/model.norm.weight: 1 of 6 elements differ, by 0.5 at most\n");
}

}  // namespace
}  // namespace trireme::checkpoint
