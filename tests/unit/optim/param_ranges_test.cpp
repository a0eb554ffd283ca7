#include "optim/param_ranges.hpp"

#include <gtest/gtest.h>

#include <set>

#include "comm/thread/thread_world.hpp"
#include "optim/sgd.hpp"

namespace trireme::optim {
namespace {

/// Declares a matrix sharded over tp, a norm without decay, a bias updated by sign, and a second
/// matrix.
void declare_params(parallel::ParamRegistry& registry) {
  registry.declare(
      {.name = "matrix", .shape = {10, 3}, .split = parallel::DimSplit{.dim = 0, .grain = 2}});
  registry.declare({.name = "norm", .shape = {3}, .decay = false});
  registry.declare({.name = "bias", .shape = {5}, .sign_rate = 0.1});
  registry.declare({.name = "second", .shape = {6, 50}});
}

TEST(ParamRanges, CoverEveryElementOfTheGlobalTensorsOnceOverTheZeroRanks) {
  constexpr int kTp = 2;
  constexpr int kDp = 3;
  std::mutex mutex;
  std::map<std::pair<int, parallel::ParamId>, std::multiset<std::int64_t>> seen;  // by tp rank
  comm::run_ranks(kTp * kDp, [&](comm::Communicator& world) {
    const parallel::Mesh mesh(world, {.tp = kTp, .zero = 1});
    parallel::ParamRegistry registry;
    declare_params(registry);
    registry.allocate(mesh, {at::kDouble, at::kDouble}, at::kCPU);
    const std::vector<ParamRange> ranges = param_ranges(registry);
    const std::lock_guard lock(mutex);
    for (const ParamRange& range : ranges) {
      const std::vector<std::int64_t>& shape = registry.spec(range.id).shape;
      EXPECT_GE(range.elements.count, range.slice.count());
      EXPECT_EQ(range.elements.weights(registry).numel(), range.elements.count);
      for (const parallel::SliceRun& run :
           parallel::intersect(shape, range.slice, parallel::Slice::whole(shape)))
        for (std::int64_t i = 0; i < run.count; ++i)
          seen[{mesh.rank(parallel::Axis::tp), range.id}].insert(run.target_index + i);
    }
  });
  for (int tp_rank = 0; tp_rank < kTp; ++tp_rank) {
    const std::int64_t rows = parallel::split_range(10, {.grain = 2}, kTp, tp_rank).count();
    for (const auto& [id, elements] :
         {std::pair<parallel::ParamId, std::int64_t>{0, 3 * rows}, {1, 3}, {2, 5}, {3, 300}}) {
      const auto& all = seen[{tp_rank, id}];
      EXPECT_EQ(static_cast<std::int64_t>(all.size()), elements) << "parameter " << id;
      EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size()) << "parameter " << id;
    }
  }
}

TEST(UpdateRanges, MergeNeighboursOfEqualDecayAndLeaveOutSignParameters) {
  comm::run_ranks(1, [&](comm::Communicator& world) {
    const parallel::Mesh mesh(world, {});
    parallel::ParamRegistry registry;
    registry.declare({.name = "a", .shape = {3}});
    registry.declare({.name = "b", .shape = {70}});
    registry.declare({.name = "norm", .shape = {3}, .decay = false});
    registry.declare({.name = "bias", .shape = {5}, .decay = false, .sign_rate = 0.1});
    registry.declare({.name = "norm2", .shape = {3}, .decay = false});
    registry.allocate(mesh, {at::kDouble, at::kDouble}, at::kCPU);
    const auto params = param_ranges(registry);
    const auto ranges = update_ranges(registry, params);
    ASSERT_EQ(ranges.size(), 3u);
    const auto expect_range = [&](std::size_t i, std::int64_t begin, std::int64_t count,
                                  bool decay) {
      EXPECT_EQ(ranges[i].elements.begin, begin) << i;
      EXPECT_EQ(ranges[i].elements.count, count) << i;
      EXPECT_EQ(ranges[i].decay, decay) << i;
    };
    expect_range(0, 0, 192, true);  // parameters begin at multiples of 64 elements
    expect_range(1, 192, 64, false);
    expect_range(2, 320, 64, false);
  });
}

TEST(Optimizer, UpdatesItsParametersAndNoOthers) {
  comm::run_ranks(1, [&](comm::Communicator& world) {
    const parallel::Mesh mesh(world, {});
    parallel::ParamRegistry registry;
    declare_params(registry);
    registry.allocate(mesh, {at::kDouble, at::kDouble}, at::kCPU);
    registry.master_part(0).fill_(1);
    registry.grad_part(0).fill_(1);
    std::vector<ParamRange> params = param_ranges(registry);
    std::erase_if(params, [](const ParamRange& range) { return range.id == 3; });
    Sgd({.weight_decay = 0}, registry, params).step(1, 0.5);
    for (const auto& [id, value] :
         {std::pair<parallel::ParamId, double>{0, 0.5}, {1, 0.5}, {2, 1}, {3, 1}})
      EXPECT_EQ(registry.main(id).flatten()[0].item<double>(), value) << "parameter " << id;
  });
}

}  // namespace
}  // namespace trireme::optim
