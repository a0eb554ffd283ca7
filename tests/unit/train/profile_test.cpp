#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.hpp"
#include "train/config/config.hpp"
#include "train/config/profile_request.hpp"
#include "train/profile/phase_times.hpp"

namespace trireme::train {
namespace {

TEST(ProfileRequest, ReadsStepsAndListsOfRanks) {
  const ProfileRequest request = parse_profile("steps=10:13,ranks=0,2,4:7");
  EXPECT_EQ(request.first_step, 10);
  EXPECT_EQ(request.last_step, 13);
  std::string ranks;
  for (int rank = 0; rank < 9; ++rank) ranks += request.has_rank(rank) ? '1' : '0';
  EXPECT_EQ(ranks, "101011110");

  EXPECT_TRUE(parse_profile("steps=5").has_rank(0));
  EXPECT_FALSE(parse_profile("steps=5").has_rank(1));
  EXPECT_TRUE(parse_profile("ranks=all,steps=5").has_rank(77));
}

TEST(ProfileRequest, WrongTextIsOneErrorWithTheAllowedForm) {
  for (const char* text : {"10:13", "steps=13:10", "steps=0:3", "steps=a", "steps=1:b", "ranks=-1",
                           "step=3", "steps=1:2,ranks=", "steps=1:2000", "steps=1,2", "steps="}) {
    try {
      (void)parse_profile(text);
      ADD_FAILURE() << text << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("steps=10:13,ranks=0"), std::string::npos) << text;
    }
  }
  EXPECT_THROW(check_profile_ranks(parse_profile("steps=1,ranks=0:2"), 2), Error);
  check_profile_ranks(parse_profile("steps=1,ranks=0:1"), 2);
}

TEST(ProfileRequest, AKeyWithoutStepsIsRefusedWithItsName) {
  RunConfig config;
  config.train.profile = "ranks=0";
  Problems problems;
  check(config, problems);
  const auto names_key = [](const std::string& line) { return line.starts_with("train.profile"); };
  EXPECT_EQ(std::count_if(problems.lines().begin(), problems.lines().end(), names_key), 1);
}

TEST(ProfileRequest, ALiveRequestWithoutStepsProfilesTheStepsThatFollowTheNextOne) {
  const ProfileRequest request = live_profile("\n", 7);
  EXPECT_EQ(request.first_step, 9);
  EXPECT_EQ(request.last_step, 11);
  EXPECT_EQ(live_profile("steps=20:21,ranks=1\n", 7).first_step, 20);
  EXPECT_THROW((void)live_profile("steps=8", 7), Error) << "ranks learn of it during step 8";
  EXPECT_THROW((void)live_profile("nonsense", 7), Error);
}

/// Records the ranges of a thread as text.
class RangeList final : public RangeObserver {
 public:
  void begin(Phase, const std::string& name) override { text += name + "("; }

  void end() override { text += ")"; }

  std::string text;
};

TEST(NamedRange, WithoutAnObserverOfThisThreadItsNameIsNotComputed) {
  RangeList list;
  range_observer = &list;
  {
    const NamedRange outer(Phase::forward, "forward");
    const NamedRange inner(Phase::none, [] { return std::string("norm"); });
    std::thread([] {
      const NamedRange other(Phase::none, []() -> std::string { throw std::bad_alloc(); });
    }).join();
  }
  range_observer = nullptr;
  const NamedRange off(Phase::none, []() -> std::string { throw std::bad_alloc(); });
  EXPECT_EQ(list.text, "forward(norm())");
}

TEST(PhaseTimes, EachSecondOfAStepBelongsToOnePhase) {
  PhaseTimes times;
  times.start(5, 0);
  times.begin(Phase::data_wait, 1);  // 0 to 1: other
  times.begin(Phase::communication, 2);
  times.end(3);
  times.end(4);  // 1 to 4: data wait, with the communication inside
  times.begin(Phase::forward, 4);
  times.begin(Phase::none, 5);  // a name without a phase
  times.begin(Phase::communication, 6);
  times.end(8);
  times.end(9);
  times.end(10);  // 4 to 10: forward, without the 2 s of communication
  times.begin(Phase::checkpoint, 10);
  times.begin(Phase::optimizer, 11);
  times.end(12);
  times.end(13);
  times.end_step(15);
  times.begin(Phase::backward, 15);
  times.end(16);
  times.end_step(17);

  const Json json = times.to_json(3);

  EXPECT_EQ(json["rank"], 3);
  const Json& first = json["steps"][0];
  EXPECT_EQ(first["step"], 5);
  EXPECT_EQ(first["step_s"], 15);
  EXPECT_EQ(first["data_wait_s"], 3);
  EXPECT_EQ(first["forward_s"], 4);
  EXPECT_EQ(first["comm_exposed_s"], 2);
  EXPECT_EQ(first["checkpoint_s"], 3);
  EXPECT_EQ(first["optimizer_s"], 0);
  EXPECT_EQ(first["other_s"], 3);
  EXPECT_EQ(json["steps"][1]["step"], 6);
  EXPECT_EQ(json["mean"]["step_s"], 8.5);
  EXPECT_EQ(json["mean"]["backward_s"], 0.5);
  const std::string table = phase_table(std::vector<Json>{json});
  EXPECT_NE(table.find("communication, exposed      1000.000 ms  11.8 %"), std::string::npos)
      << table;
}

}  // namespace
}  // namespace trireme::train
