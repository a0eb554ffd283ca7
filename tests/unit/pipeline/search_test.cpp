#include "pipeline/search.hpp"

#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <random>

#include "core/error.hpp"
#include "pipeline/draw.hpp"
#include "pipeline/greedy.hpp"

namespace trireme::pipeline {
namespace {

TEST(Search, IsNeverSlowerThanAnyNamedOneThatFits) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const Shape shape{1 + static_cast<int>(random() % 6), 1 + static_cast<int>(random() % 2),
                      1 + static_cast<int>(random() % 14)};
    Timing timing;
    const auto time = [&] { return 0.25 * static_cast<double>(1 + random() % 12); };
    for (int stage = 0; stage < shape.ranks * shape.virtual_stages; ++stage)
      timing.stages.push_back({time(), time(), time()});
    timing.transfer = 0.1 * static_cast<double>(random() % 5);
    const int limit = static_cast<int>(random() % 3) * shape.ranks * shape.virtual_stages;
    SCOPED_TRACE(formatted("p {}, v {}, m {}, limit {}", shape.ranks, shape.virtual_stages,
                           shape.micro_batches, limit));
    const Found found = search_schedule(shape, timing, limit);
    ASSERT_EQ(mistake_in(found.schedule), "");
    ASSERT_EQ(found.simulation.stuck, "");
    for (const std::string_view name : kSchedules) {
      if (!mistake_in_stages(name, shape.virtual_stages).empty() ||
          stages_per_rank(name, shape.virtual_stages) != shape.virtual_stages)
        continue;
      const Simulation other = simulate(named_schedule(name, shape), timing);
      if (limit > 0 && other.peak() > limit) continue;
      EXPECT_LE(found.simulation.makespan, other.makespan) << name;
      EXPECT_TRUE(limit == 0 || found.simulation.peak() <= limit);
    }
  }
}

// If weight gradients are cheap and transfers are expensive, no named schedule is best.
TEST(Search, FindsWhatHasNoName) {
  const Shape shape{4, 1, 10};
  const Timing timing{{{1, 1, 0.5}}, 0.75};
  const Found found = search_schedule(shape, timing, 0);
  EXPECT_EQ(found.origin, "greedy");
  for (const std::string_view name : {"gpipe", "1f1b", "zb-h1"})
    EXPECT_LT(found.simulation.makespan, simulate(named_schedule(name, shape), timing).makespan);
}

TEST(Greedy, KeepsItsLimitAndEnds) {
  for (int p = 1; p <= 6; ++p) {
    for (const int m : {1, 5, 16}) {
      for (int limit = 1; limit <= 3 * p; ++limit) {
        for (const Placement& placement : {looped_placement(p, 3), v_placement(p)}) {
          const Schedule schedule =
              greedy_schedule(placement, m, {{ActionTimes{}}}, {.max_in_flight = limit});
          ASSERT_EQ(mistake_in(schedule), "");
          const Simulation simulation = simulate(schedule, {{ActionTimes{}}});
          ASSERT_EQ(simulation.stuck, "");
          // Every limit allows at least the number of stages of a rank.
          const int stages = placement.stages() / p;
          ASSERT_LE(simulation.peak(), std::max(limit, stages));
        }
      }
    }
  }
}

// It takes 0.1 s of CPU time. It took 10 s while each step looked at all stages for each rank.
TEST(Greedy, TakesLittleTimeForALongPipeline) {
  const std::clock_t begin = std::clock();
  const Schedule schedule =
      greedy_schedule(v_placement(128), 256, {{ActionTimes{}}}, {.max_in_flight = 256});

  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 4);
  EXPECT_EQ(schedule.lists.front().size(), 2U * 256 * 3);
}

// So the bits of a sum of gradients do not depend on the measured times of the search, except for a
// table with uses in two stages of one rank.
TEST(Search, StagesAddWeightGradientsInTheOrderOfMicroBatches) {
  for (const double slow : {0.3, 1.0, 2.5}) {
    const Timing timing{{{1, slow, 1}, {slow, 1, 1}, {1, 1, slow}, {1, 1, 1}}, 0.1 * slow};
    for (const Placement& placement : {looped_placement(2, 2), v_placement(2)}) {
      for (const int micro_batches : {1, 3, 8}) {
        for (const int room : {0, 3, 6}) {
          const Found found = search_schedule(placement, micro_batches, timing, room);
          EXPECT_EQ(found.schedule.placement.rank_of_stage, placement.rank_of_stage);
          for (const std::vector<StageAction>& list : found.schedule.lists) {
            std::map<int, int> next;  // by stage
            for (const StageAction& pass : list) {
              if (gives_weight_grad(pass.kind)) {
                EXPECT_EQ(pass.micro_batch, next[pass.stage]++);
              }
            }
          }
        }
      }
    }
  }
}

TEST(Draw, HasABoxForEachPass) {
  const Schedule schedule = named_schedule("zb-v", {2, 2, 3});
  const std::string svg = draw(schedule, {{ActionTimes{}}});
  std::size_t boxes = 0;
  for (std::size_t at = svg.find("<rect x="); at != std::string::npos;
       at = svg.find("<rect x=", at + 1))
    ++boxes;
  EXPECT_EQ(boxes, 4U * 3 * 3);  // stages, micro-batches, kinds
  EXPECT_NE(svg.find("<title>W3.2</title>"), std::string::npos);
}

}  // namespace
}  // namespace trireme::pipeline
