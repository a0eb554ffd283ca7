#include <gtest/gtest.h>

#include <cmath>

#include "core/error.hpp"
#include "pipeline/named.hpp"
#include "pipeline/schedule_file.hpp"
#include "pipeline/simulate.hpp"
#include "support/sanitized.hpp"

namespace trireme::pipeline {
namespace {

const Timing kEqualPasses{{ActionTimes{}}};

/// Calls `call` with every shape that a schedule name allows.
template <class Call>
void for_all_shapes(std::string_view name, Call call) {
  for (int p = 1; p <= 16; ++p) {
    for (int v = 1; v <= 4; ++v) {
      if (!mistake_in_stages(name, v).empty() || stages_per_rank(name, v) != v) continue;
      for (int m = 1; m <= 64; m += kSanitized ? 7 : 1) call(Shape{p, v, m});
    }
  }
}

std::string where(std::string_view name, const Shape& shape) {
  return formatted("{}, p {}, v {}, m {}", name, shape.ranks, shape.virtual_stages,
                   shape.micro_batches);
}

class NamedSchedules : public testing::TestWithParam<std::string_view> {};

// Every schedule is complete, ordered and without deadlock; bubble and peak equal its formula.
TEST_P(NamedSchedules, AreValidAndAsTheory) {
  for_all_shapes(GetParam(), [](const Shape& shape) {
    SCOPED_TRACE(where(GetParam(), shape));
    const Schedule schedule = named_schedule(GetParam(), shape);
    ASSERT_EQ(mistake_in(schedule), "");
    const Simulation simulation = simulate(schedule, kEqualPasses);
    ASSERT_EQ(simulation.stuck, "");
    const Formula formula = formula_of(GetParam(), shape);
    if (formula.exact) {
      ASSERT_NEAR(simulation.bubble, formula.bubble, 1e-9);
      ASSERT_EQ(simulation.peak(), formula.peak);
    } else {
      ASSERT_GE(simulation.bubble, formula.bubble - 1e-9);
      ASSERT_LE(simulation.peak(), formula.peak);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, NamedSchedules, testing::ValuesIn(kSchedules), [](const auto& name) {
  std::string text(name.param);
  std::erase(text, '-');
  return text;
});

// With 1f1b, a rank has as many micro-batches in flight as there are ranks behind it, plus one.
// With zb-h1, every rank has p.
TEST(Schedules, MemoryByRank) {
  const Shape shape{4, 1, 12};
  EXPECT_EQ(simulate(named_schedule("1f1b", shape), kEqualPasses).peaks, (std::vector{4, 3, 2, 1}));
  EXPECT_EQ(simulate(named_schedule("zb-h1", shape), kEqualPasses).peaks,
            (std::vector{4, 4, 4, 4}));
}

TEST(Schedules, ZeroBubbleIsAThirdOfOneByOne) {
  for (const int m : {8, 12, 33}) {
    const Shape shape{4, 1, m};
    const double plain = simulate(named_schedule("1f1b", shape), kEqualPasses).bubble;
    EXPECT_LE(simulate(named_schedule("zb-h1", shape), kEqualPasses).bubble, 0.4 * plain);
  }
}

TEST(Schedules, TransfersMakeThemLonger) {
  const Schedule schedule = named_schedule("1f1b", {2, 1, 1});
  EXPECT_DOUBLE_EQ(simulate(schedule, {{{1, 1, 1}}, 0.5}).makespan, 7);
  EXPECT_DOUBLE_EQ(simulate(schedule, {{{1, 1, 1}, {2, 2, 2}}, 0}).makespan, 9);
}

// With a processor for each rank, the time is that of simulate(). With one processor, it is the sum
// of all work.
TEST(SharedProcessors, LieBetweenOneAndOneARank) {
  const Timing uneven{{{1, 1.5, 0.5}, {2, 1, 1}, {1, 1, 1}, {1.25, 2, 1}}, 0};
  for (const std::string_view name : kSchedules) {
    const int v = stages_per_rank(name, 1);
    const Schedule schedule = named_schedule(name, {4 / v, v, 6});
    SCOPED_TRACE(name);
    double work = 0;
    for (const ActionTimes& stage : uneven.stages) work += 6 * stage.sum();
    EXPECT_NEAR(makespan_on_processors(schedule, uneven, 1), work, 1e-9);
    const double alone = simulate(schedule, uneven).makespan;
    EXPECT_NEAR(makespan_on_processors(schedule, uneven, 4 / v), alone, 1e-9);
    const double shared = makespan_on_processors(schedule, uneven, 1.5);
    EXPECT_GE(shared, std::max(alone, work / 1.5) - 1e-9);
    EXPECT_LT(shared, work);
  }
}

// 1f1b on half as many processors as ranks: during the first forward and the last backward pass,
// one processor is idle, while otherwise both share the work.
TEST(SharedProcessors, WaitWhereOneRankAloneHasWork) {
  for (const int m : {4, 8, 16})
    EXPECT_NEAR(makespan_on_processors(named_schedule("1f1b", {4, 1, m}), kEqualPasses, 2),
                6 * m + 3, 1e-9);
  EXPECT_NEAR(makespan_on_processors(named_schedule("1f1b", {2, 1, 1}), {{{1, 1, 1}}, 0.5}, 1), 7,
              1e-9);
}

TEST(SharedProcessors, AreNeverFreeInAScheduleThatIsStuck) {
  Schedule schedule = named_schedule("1f1b", {2, 1, 2});
  std::swap(schedule.lists[0].front(), schedule.lists[0].back());
  EXPECT_EQ(makespan_on_processors(schedule, kEqualPasses, 1), kNever);
}

TEST(ScheduleText, ReadsWhatItWrites) {
  for (const std::string_view name : kSchedules) {
    const Schedule schedule = named_schedule(name, {3, stages_per_rank(name, 1), 7});
    const Schedule again = parse_schedule(text_of(schedule), "file");
    EXPECT_EQ(again.lists, schedule.lists);
    EXPECT_EQ(again.placement.rank_of_stage, schedule.placement.rank_of_stage);
    EXPECT_EQ(again.micro_batches, 7);
  }
}

/// Returns the message for a text that is not a schedule.
std::string refusal(std::string_view text) {
  try {
    (void)parse_schedule(text, "s.txt");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "none";
}

TEST(ScheduleText, RefusesWhatIsNoSchedule) {
  const auto says = [](std::string_view text, const std::string& what) {
    EXPECT_NE(refusal(text).find(what), std::string::npos) << refusal(text);
  };
  says("F0.0 BW0.0\nF1.0 BW1.0 # a comment\n", "none");
  says("", "no action");
  says("F0.0 X0.0", "s.txt:1: 'X0.0'");
  says("F0.0 BW0.-1", "s.txt:1: 'BW0.-1'");
  says("F0.0 BW0.99999999999", "'BW0.99999999999'");
  says("F0.2147483647", "'F0.2147483647', its stage and micro-batch must be below 1000000");
  says("F1000000.0", "must be below 1000000");
  says("F0.999999", "F0.0 is missing");
  says("F0.0", "stage 0, micro-batch 0 needs either BW, or B and W");
  says("F0.0 B0.0", "needs either");
  says("F0.0 BW0.0 W0.0", "needs either");
  says("F0.0 F0.0 BW0.0", "F0.0 is listed twice");
  says("F0.0 BW0.0 F1.0\nBW1.0", "BW1.0 is listed for rank 1, its stage is on rank 0");
  says("F0.0 BW0.0\nF2.0 BW2.0", "stage 1 of 3 has no action");
  says("BW0.0 F0.0", "BW0.0 can never start");
  says("F0.0 BW0.0 F0.1 BW0.1\nF1.1 F1.0 BW1.1 BW1.0", "can never start");
  says("W0.0 F0.0 B0.0", "W0.0 can never start");
}

TEST(ScheduleText, FirstPassThatIsStuck) {
  // Rank 0 waits for a gradient before it sends the activation that the gradient comes from.
  const Schedule schedule{looped_placement(2, 1),
                          2,
                          {{{ActionKind::forward, 0, 0},
                            {ActionKind::backward, 0, 0},
                            {ActionKind::forward, 0, 1},
                            {ActionKind::backward, 0, 1}},
                           {{ActionKind::forward, 1, 0},
                            {ActionKind::forward, 1, 1},
                            {ActionKind::backward, 1, 0},
                            {ActionKind::backward, 1, 1}}}};
  EXPECT_EQ(mistake_in(schedule), "");
  EXPECT_EQ(simulate(schedule, kEqualPasses).stuck, "BW0.0");
}

}  // namespace
}  // namespace trireme::pipeline
