#include "optim/matrix_exchange.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"
#include "optim/matrix_plan.hpp"
#include "optim/optimizer.hpp"

namespace trireme::optim {
namespace {

/// Matrices that tp splits by rows, by columns, with rows that two ranks hold, and not at all; and
/// a stack that it splits inside.
void declare_split(parallel::ParamRegistry& registry) {
  using parallel::DimSplit;
  registry.declare({.name = "rows", .shape = {10, 3}, .split = DimSplit{.dim = 0, .grain = 2}});
  registry.declare({.name = "columns", .shape = {6, 50}, .split = DimSplit{.dim = 1}});
  registry.declare({.name = "norm", .shape = {3}, .decay = false});
  registry.declare(
      {.name = "keys", .shape = {6, 7}, .split = DimSplit{.dim = 0, .grain = 2, .readers = 9}});
  registry.declare({.name = "whole", .shape = {50, 7}});
  registry.declare({.name = "stack", .shape = {3, 2, 5, 4}, .split = DimSplit{.dim = 2}});
}

/// Sets every element of a state buffer to its index in the parameter.
void fill_with_indices(const parallel::ParamRegistry& registry, const at::Tensor& state) {
  for (const ParamRange& range : param_ranges(registry)) {
    const std::vector<std::int64_t>& shape = registry.spec(range.id).shape;
    for (const parallel::SliceRun& run :
         parallel::intersect(shape, range.slice, parallel::Slice::whole(shape)))
      range.elements.state(registry, state)
          .narrow(0, run.source_index, run.count)
          .copy_(at::arange(run.target_index, run.target_index + run.count));
  }
}

TEST(MatrixExchange, GathersEveryMatrixOnOneOwnerAndScattersItToAllHolders) {
  std::mutex mutex;
  std::map<std::pair<std::int64_t, std::int64_t>, int> owned;  // matrices by shape
  comm::run_ranks(6, [&](comm::Communicator& world) {
    const parallel::Mesh mesh(world, {.tp = 2, .zero = 1});
    parallel::ParamRegistry registry;
    declare_split(registry);
    registry.allocate(mesh, {at::kDouble, at::kDouble}, at::kCPU);
    const parallel::UnitLayout& layout = registry.layout();
    const MatrixExchange exchange(
        registry, {layout.dense_grid(), layout.expert_grid(), layout.persist()}, false);
    const at::Tensor state = registry.make_state();
    fill_with_indices(registry, state);
    const at::Tensor sent = exchange.make_sent();
    for (const MatrixRun& run : exchange.sent_runs())
      sent.narrow(0, run.begin, run.elements.count).copy_(run.elements.state(registry, state));
    const at::Tensor gathered = exchange.gather(sent);
    const at::Tensor scattered = exchange.make_scattered(gathered);
    std::vector<at::Tensor> lines = exchange.gather_lines(state);
    for (std::size_t i = 0; i < exchange.num_owned(); ++i) {
      const Matrix& shape = exchange.owned(i);
      const at::Tensor whole = exchange.whole(gathered, i);
      const std::int64_t first = whole[0][0].item<std::int64_t>();
      EXPECT_EQ(first % (shape.rows * shape.columns), 0);
      EXPECT_TRUE(whole.flatten().equal(
          at::arange(first, first + shape.rows * shape.columns).to(at::kDouble)));
      EXPECT_TRUE(lines[i].equal(shape.rows >= shape.columns ? whole.select(1, 0) : whole[0]));
      exchange.put(whole * 2, i, scattered);
      lines[i] = lines[i] + 0.5;
      const std::lock_guard lock(mutex);
      ++owned[{shape.rows, shape.columns}];
    }
    const at::Tensor returned = exchange.scatter(scattered);
    std::int64_t count = 0;
    for (const MatrixRun& run : exchange.returned_runs()) {
      const at::Tensor values = run.elements.state(registry, state);
      EXPECT_TRUE(returned.narrow(0, run.begin, run.elements.count).equal(values * 2));
      count += run.elements.count;
    }
    std::int64_t held = 0;
    const at::Tensor expected = state.clone();
    for (const ParamRange& range : param_ranges(registry)) {
      const parallel::ParamSpec& spec = registry.spec(range.id);
      if (!has_matrices(spec)) continue;
      held += range.slice.count();
      const std::int64_t rows = spec.shape[spec.shape.size() - 2];
      const std::int64_t columns = spec.shape.back();
      const at::Tensor elements =
          range.elements.state(registry, expected).narrow(0, 0, range.slice.count());
      const at::Tensor in_line = rows >= columns ? elements.remainder(columns).eq(0)
                                                 : elements.remainder(rows * columns).lt(columns);
      elements.add_(in_line.to(at::kDouble) * 0.5);
    }
    EXPECT_EQ(count, held);
    exchange.scatter_lines(lines, state);
    EXPECT_TRUE(state.equal(expected));
  });
  const std::map<std::pair<std::int64_t, std::int64_t>, int> all{
      {{10, 3}, 1}, {{6, 50}, 1}, {{6, 7}, 1}, {{50, 7}, 1}, {{5, 4}, 6}};
  EXPECT_EQ(owned, all);
}

TEST(MatrixPlan, OwnersHaveAboutEqualCosts) {
  parallel::ParamRegistry registry;
  registry.declare({.name = "large", .shape = {64, 32}});
  for (int i = 0; i < 9; ++i) registry.declare({.name = cat("middle", i), .shape = {32, 32}});
  registry.declare({.name = "experts", .shape = {12, 16, 32}});
  constexpr int kRanks = 4;
  const StageGrids grids{{1, 0, kRanks, 0, 1, 0}, {}, 0};
  std::array<std::int64_t, kRanks> costs{};
  for (const Matrix& one : make_matrix_plan(registry, grids, false).matrices)
    costs.at(static_cast<std::size_t>(one.owner)) +=
        one.rows * one.columns * std::min(one.rows, one.columns);

  const auto [least, most] = std::minmax_element(costs.begin(), costs.end());
  EXPECT_LE(*most - *least, 16 * 16 * 32) << "the smallest matrix";
}

}  // namespace
}  // namespace trireme::optim
