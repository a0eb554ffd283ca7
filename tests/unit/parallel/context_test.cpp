#include "comm/thread/thread_world.hpp"
#include "comm/traffic.hpp"
#include "core/error.hpp"
#include "unit/parallel/context_support.hpp"

namespace trireme::testing {
namespace {

TEST(ContextAttention, EqualsOneProcessInEveryForm) {
  for (const int ranks : {1, 2, 3, 4}) {
    comm::run_ranks(ranks, [&](comm::Communicator& world) {
      for (const ContextCase& c : context_cases()) {
        for (const parallel::ContextAlgorithm form : kAllForms) {
          for (const parallel::ContextBalance balance :
               {parallel::ContextBalance::zigzag, parallel::ContextBalance::work}) {
            expect_as_one_process(world, c, form, balance, at::kDouble, ops::Path::fast, 1e-12);
          }
        }
      }
    });
  }
}

// fp32: 1e-5 for sums of some tens of products. bf16: the bound of attention on one process in its
// own test, and one more rounding for the merge.
TEST(ContextAttention, OnTheFastKernelsToo) {
  const ContextCase wide{"wide", 2, 4, 2, 192, 32, true, {{0, 70, 192}, {0, 64, 65, 192}}};
  ContextCase windowed = wide;
  windowed.window = 50;
  for (const int ranks : {2, 3}) {
    comm::run_ranks(ranks, [&](comm::Communicator& world) {
      for (const parallel::ContextAlgorithm form : kAllForms) {
        if (form == parallel::ContextAlgorithm::ulysses && wide.H % ranks != 0) continue;
        for (const ContextCase& c : {wide, windowed}) {
          expect_as_one_process(world, c, form, parallel::ContextBalance::zigzag, at::kFloat,
                                ops::Path::fast, 1e-5);
          expect_as_one_process(world, c, form, parallel::ContextBalance::work, at::kBFloat16,
                                ops::Path::fast, 3e-2);
        }
      }
    });
  }
}

TEST(ContextAttention, ARankWithoutTargetsAddsNothing) {
  comm::run_ranks(3, [](comm::Communicator& world) {
    for (const parallel::ContextAlgorithm form : kAllForms) {
      for (const int idle : {0, 1, 2}) {
        expect_as_one_process(world, context_cases()[1], form, parallel::ContextBalance::zigzag,
                              at::kDouble, ops::Path::fast, 1e-12, idle);
      }
    }
  });
}

TEST(ContextAttention, IsTheSameFunctionTwice) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    const ContextCase c = context_cases()[1];
    const auto me = static_cast<std::size_t>(world.rank());
    const parallel::ContextSetup setup{
        c.rows(0.3),
        parallel::shard_positions(parallel::ContextBalance::work, c.rows(0.3), c.B, c.T, 2)};
    const Whole whole = whole_of(c, at::kFloat);
    for (const parallel::ContextAlgorithm form : kAllForms) {
      const auto run = [&] {
        std::vector<at::Tensor> own;
        for (const auto& x : {whole.q, whole.k, whole.v})
          own.push_back(at_places(x, setup.positions[me]).detach().requires_grad_());
        const auto out = parallel::context_attention(own[0], own[1], own[2], setup, world, form);
        auto results =
            torch::autograd::grad({out}, own, {at_places(whole.incoming, setup.positions[me])});
        results.push_back(out.detach());
        return results;
      };
      const auto first = run();
      const auto second = run();

      for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i].equal(second[i])) << i;
    }
  });
}

/// Bytes of one rank: the cost of context parallelism by the formulas of its README.
TEST(ContextAttention, SendsWhatTheFormulasSay) {
  constexpr std::uint64_t kRanks = 4;
  comm::run_ranks(kRanks, [](comm::Communicator& world) {
    const ContextCase c{"", 2, 8, 4, 48, 8, true, {}};
    const auto me = static_cast<std::size_t>(world.rank());
    const parallel::ContextSetup setup{
        c.rows(0.3), parallel::shard_positions(parallel::ContextBalance::zigzag, {}, c.B, c.T, 4)};
    const Whole whole = whole_of(c, at::kFloat);
    const std::uint64_t keys = 2 * 2 * 4 * 12 * 8 * 4;             // k and v of T / c positions
    const std::uint64_t heads = (2 * 8 + 2 * 4) * 2 * 12 * 8 * 4;  // q, out, k, v
    const std::array<std::array<std::uint64_t, 2>, 3> expected{
        {{3 * keys, 6 * keys}, {3 * keys, 6 * keys}, {heads * 3 / 4, heads * 3 / 4}}};
    for (const parallel::ContextAlgorithm form : kAllForms) {
      std::vector<at::Tensor> own;
      for (const auto& x : {whole.q, whole.k, whole.v})
        own.push_back(at_places(x, setup.positions[me]).detach().requires_grad_());
      const std::uint64_t start = comm::total_traffic(world.traffic()).moved_bytes.value();
      const auto out = parallel::context_attention(own[0], own[1], own[2], setup, world, form);
      const std::uint64_t middle = comm::total_traffic(world.traffic()).moved_bytes.value();
      torch::autograd::grad({out}, own, {at::ones_like(out)});
      const std::uint64_t end = comm::total_traffic(world.traffic()).moved_bytes.value();

      const auto& bytes = expected.at(static_cast<std::size_t>(form));
      EXPECT_EQ(middle - start, bytes[0]) << static_cast<int>(form);
      EXPECT_EQ(end - middle, bytes[1]) << static_cast<int>(form);
    }
  });
}

TEST(ContextAttention, RefusesHeadsThatUlyssesCannotDivide) {
  comm::run_ranks(4, [](comm::Communicator& world) {
    const ContextCase c{"", 1, 6, 2, 24, 4, true, {}};
    const auto me = static_cast<std::size_t>(world.rank());
    const parallel::ContextSetup setup{
        c.rows(0.5), parallel::shard_positions(parallel::ContextBalance::zigzag, {}, 1, c.T, 4)};
    const Whole whole = whole_of(c, at::kDouble);
    const auto q = at_places(whole.q, setup.positions[me]);
    const auto k = at_places(whole.k, setup.positions[me]);
    try {
      parallel::context_attention(q, k, k, setup, world, parallel::ContextAlgorithm::ulysses);
      ADD_FAILURE() << "6 heads over 4 ranks";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("6 query heads, must be divisible by 4"),
                std::string::npos)
          << error.what();
    }
    expect_as_one_process(world, c, parallel::ContextAlgorithm::ring,
                          parallel::ContextBalance::zigzag, at::kDouble, ops::Path::fast, 1e-12);
  });
}

std::vector<int> holders_of(const std::vector<ops::RowPositions>& places, std::size_t row,
                            std::int64_t length) {
  std::vector<int> holders(static_cast<std::size_t>(length), -1);
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    for (const auto& range : places[rank][row]) {
      for (std::int64_t i = range.first; i < range.first + range.length; ++i) {
        EXPECT_EQ(holders.at(static_cast<std::size_t>(i)), -1) << "place " << i << " twice";
        holders[static_cast<std::size_t>(i)] = static_cast<int>(rank);
      }
    }
  }
  return holders;
}

TEST(DealPlaces, ZigzagGivesRankIChunksIAndTheMirroredOne) {
  const auto places = parallel::shard_positions(parallel::ContextBalance::zigzag, {}, 1, 12, 3);

  EXPECT_EQ(holders_of(places, 0, 12), (std::vector<int>{0, 0, 1, 1, 2, 2, 2, 2, 1, 1, 0, 0}));
  EXPECT_DOUBLE_EQ(parallel::work_imbalance(places, {}), 1.0);
}

TEST(DealPlaces, EveryPlaceOnceAndAsManyOnEachRank) {
  const ops::RowBounds bounds{{0, 100, 130, 2000, 3072}, {0, 3072}, {0, 7, 3072}};
  for (const auto balance : {parallel::ContextBalance::zigzag, parallel::ContextBalance::work}) {
    for (const int ranks : {1, 2, 3, 4, 6, 8}) {
      const auto places = parallel::shard_positions(balance, {.bounds = bounds}, 3, 3072, ranks);
      for (std::size_t row = 0; row < 3; ++row) {
        const auto holders = holders_of(places, row, 3072);
        for (int rank = 0; rank < ranks; ++rank)
          EXPECT_EQ(std::count(holders.begin(), holders.end(), rank), 3072 / ranks);
      }
    }
  }
}

TEST(DealPlaces, ByWorkIsMoreEvenWhereDocumentsEnd) {
  const ops::RowBounds bounds{{0, 3000, 3200, 3300, 3500, 4096}};
  for (const int ranks : {2, 4, 8}) {
    const double zigzag =
        parallel::work_imbalance(parallel::shard_positions(parallel::ContextBalance::zigzag,
                                                           {.bounds = bounds}, 1, 4096, ranks),
                                 {.bounds = bounds});
    const double work =
        parallel::work_imbalance(parallel::shard_positions(parallel::ContextBalance::work,
                                                           {.bounds = bounds}, 1, 4096, ranks),
                                 {.bounds = bounds});
    RecordProperty("ranks_" + std::to_string(ranks),
                   std::to_string(zigzag) + " " + std::to_string(work));
    EXPECT_GT(zigzag, 1.2) << ranks;
    EXPECT_LT(work, 1.05) << ranks;
  }
  EXPECT_DOUBLE_EQ(
      parallel::work_imbalance(
          parallel::shard_positions(parallel::ContextBalance::work, {}, 1, 4096, 4), {}),
      1.0);
}

TEST(DealPlaces, CountsPairsInsideDocuments) {
  // Rank 0 has positions 0, 1 of the first document (1 + 2) and 6, 7 of the second (3 + 4). Rank 1
  // has 2, 3 (3 + 4) and 4, 5 (1 + 2).
  const ops::RowBounds bounds{{0, 4, 8}};
  EXPECT_DOUBLE_EQ(
      parallel::work_imbalance(
          parallel::shard_positions(parallel::ContextBalance::zigzag, {.bounds = bounds}, 1, 8, 2),
          {.bounds = bounds}),
      1.0);
  // One of two ranks has all the work: twice the mean.
  EXPECT_DOUBLE_EQ(parallel::work_imbalance({{{{0, 8}}}, {{}}}, {.bounds = bounds}), 2.0);
  // 1 + 2 + 3 + 4 of 10 + 1 + ... + 4: positions 0 to 3 and 4 to 7 of one document.
  EXPECT_DOUBLE_EQ(parallel::work_imbalance({{{{0, 4}}}, {{{4, 4}}}}, {}), 26.0 / 18.0);
  // A window of 2: 1 + 2 + 2 + 2, and 4 times 2.
  EXPECT_DOUBLE_EQ(parallel::work_imbalance({{{{0, 4}}}, {{{4, 4}}}}, {.mask = {.window = 2}}),
                   8.0 / 7.5);
}

TEST(DealPlaces, RefusesARowThatDoesNotDivide) {
  try {
    parallel::shard_positions(parallel::ContextBalance::zigzag, {}, 1, 10, 2);
    ADD_FAILURE() << "10 places over 2 ranks";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("10 positions; the number must be divisible by 4"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trireme::testing
