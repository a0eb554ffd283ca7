#include "parallel/experts/row_exchange.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/thread/thread_world.hpp"

namespace trireme::parallel {
namespace {

/// Returns the bounds of `counts` rows by expert.
at::Tensor bounds_of(const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> bounds{0};
  for (const std::int64_t count : counts) bounds.push_back(bounds.back() + count);
  return at::tensor(bounds, at::kLong);
}

ParallelConfig dealt_over(int ranks) {
  ParallelConfig config;
  config.ep = ranks;
  return config;
}

/// Returns the number of rows of rank r for each of 5 experts. Some have none, and no rank has any
/// for the last but one.
std::vector<std::int64_t> counts_of(int rank) {
  return {rank, 3 - rank, rank == 1 ? 4 : 0, 0, 2 * rank};
}

/// Returns rows (sender, expert, number), each as 2 values that identify it.
at::Tensor rows_of(int rank) {
  std::vector<double> values;
  const std::vector<std::int64_t> counts = counts_of(rank);
  for (std::size_t expert = 0; expert < counts.size(); ++expert)
    for (std::int64_t i = 0; i < counts[expert]; ++i) {
      values.push_back(static_cast<double>(expert));
      values.push_back(100.0 * rank + static_cast<double>(i));
    }
  return at::tensor(values, at::kDouble).view({-1, 2});
}

TEST(RowExchange, BringsEveryRowToItsExpertAndBack) {
  constexpr int kRanks = 3;  // 5 experts: the ranks have 1, 2 and 2 of them
  comm::run_ranks(kRanks, [](comm::Communicator& world) {
    const Mesh mesh(world, dealt_over(kRanks));
    const ExpertGroup group(mesh);
    const RowExchange exchange(group, bounds_of(counts_of(world.rank())));
    const IndexRange here = group.held(5);
    const at::Tensor rows = rows_of(world.rank());

    const at::Tensor arrived = exchange.send(rows, "rows").wait();
    const at::Tensor returned = exchange.give_back(arrived, "rows").wait();

    ASSERT_TRUE(exchange.moves());
    EXPECT_TRUE(at::equal(returned, rows)) << world.rank();
    ASSERT_EQ(static_cast<std::int64_t>(exchange.bounds().host().size()), here.count() + 1);
    ASSERT_EQ(arrived.size(0), exchange.bounds().host().back());
    for (std::int64_t expert = here.begin; expert < here.end; ++expert) {
      std::vector<double> expected;  // by the sender's rank, then in the order of sending
      for (int sender = 0; sender < kRanks; ++sender) {
        const std::int64_t count = counts_of(sender)[static_cast<std::size_t>(expert)];
        for (std::int64_t i = 0; i < count; ++i)
          expected.push_back(100.0 * sender + static_cast<double>(i));
      }
      const auto local = static_cast<std::size_t>(expert - here.begin);
      const std::int64_t first = exchange.bounds().host()[local];
      ASSERT_EQ(exchange.bounds().host()[local + 1] - first,
                static_cast<std::int64_t>(expected.size()));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const at::Tensor row = arrived[first + static_cast<std::int64_t>(i)];
        EXPECT_EQ(row[0].item<double>(), static_cast<double>(expert));
        EXPECT_EQ(row[1].item<double>(), expected[i]);
      }
    }
  });
}

TEST(RowExchange, GivesColumnsTheSameWayAsRows) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    const Mesh mesh(world, dealt_over(2));
    const RowExchange exchange(ExpertGroup(mesh), bounds_of(counts_of(world.rank())));
    const at::Tensor rows = rows_of(world.rank());
    const at::Tensor column = rows.select(1, 1).contiguous();

    const at::Tensor arrived = exchange.send(rows, "rows").wait();
    const at::Tensor of_column = exchange.send(column, "column").wait();

    EXPECT_TRUE(at::equal(of_column, arrived.select(1, 1)));
    EXPECT_TRUE(at::equal(exchange.give_back(of_column, "column").wait(), column));
  });
}

TEST(RowExchange, WithoutOtherRanksRowsStay) {
  const RowExchange exchange(ExpertGroup(), bounds_of({2, 0, 1}));
  const at::Tensor rows = at::arange(6, at::kDouble).view({3, 2});

  EXPECT_FALSE(exchange.moves());
  EXPECT_EQ(exchange.bounds().host(), (std::vector<std::int64_t>{0, 2, 2, 3}));
  EXPECT_TRUE(at::equal(exchange.send(rows, "rows").wait(), rows));
  EXPECT_TRUE(at::equal(exchange.give_back(rows, "rows").wait(), rows));
}

TEST(ExpertGroup, RanksOfTpSendTheirPartsWhereTheyHoldNoPartsOfTheSameExperts) {
  comm::run_ranks(4, [](comm::Communicator& world) {
    ParallelConfig config;
    config.tp = 4;
    config.etp = 2;
    config.ep = 2;
    const Mesh mesh(world, config);
    const ExpertGroup group(mesh);

    EXPECT_EQ(group.sent(7), world.rank() < 2 ? (IndexRange{0, 3}) : (IndexRange{3, 7}));
    EXPECT_EQ(mesh.rank(Axis::etp), world.rank() % 2);
    EXPECT_EQ(mesh.rank(Axis::ep), world.rank() / 2);
    EXPECT_EQ(mesh.size(Axis::edp), 1);
  });
}

TEST(RouteMemo, GivesWhatWasKeptOnce) {
  RouteMemo memo;
  const auto route = std::make_shared<const Route>(
      Route{at::arange(3), RowExchange(ExpertGroup(), bounds_of({3}))});
  memo.keep(4, route);

  EXPECT_EQ(memo.take(3), nullptr);
  EXPECT_EQ(memo.take(4), route);
  EXPECT_EQ(memo.take(4), nullptr);
}

}  // namespace
}  // namespace trireme::parallel
