#include "job/watch/run_view.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/files/json.hpp"
#include "core/timer.hpp"
#include "job/event_log.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::job {
namespace {

class RunViewTest : public Scratch {
 protected:
  [[nodiscard]] RunDirectory run() const { return {at("run")}; }

  void write_leg(std::int64_t restart) const {
    EventLog event_log(run().event_log());
    event_log.open([] { return true; });
    event_log.start({{"7", restart, 0}, {"n1"}, 2, {}, -1, unix_time_s() + 600});
    event_log.commit(5);
  }

  void end_leg(const AttemptEnd& end) const {
    EventLog event_log(run().event_log());
    event_log.open_newest_attempt([] { return true; });
    event_log.end(end);
  }

  void SetUp() override {
    Scratch::SetUp();
    run().prepare();
    write_status(run(), "running", 0, 7, 5);
    std::ofstream(run().config()) << "[train]\nsteps = 20\n";
    std::ofstream(run().metrics())
        << R"({"step": 6, "loss": 3.5, "time": 1, "step_time_s": 9, "tokens_per_s": 10})"
        << "\n"
        << R"({"step": 8, "loss": 3.250004, "time": )" << unix_time_s() - 30
        << R"(, "step_time_s": 2, "tokens_per_s": 4096, "slowest_rank": 1})"
        << "\n"
        << R"({"eval_step": 8, "valid_loss": 3.5})"
        << "\n"
        << R"({"step": 9, "lo)";
    write_leg(0);
  }
};

TEST_F(RunViewTest, ARunWithCheckpointsButWithoutEventsIsNotNew) {
  std::filesystem::create_directories(run().checkpoints() / "step-000000005");
  std::filesystem::remove(run().event_log());

  const RunView view = view_run(run(), unix_time_s());

  EXPECT_EQ(view.state, kNoEventsState);
  EXPECT_TRUE(view.has_ended()) << "nothing to wait for";
}

TEST_F(RunViewTest, ReportsTheStateOfARun) {
  std::ofstream(run().root / "LOCK") << "";
  const RunView view = view_run(run(), unix_time_s());

  EXPECT_EQ(view.state, "running");
  EXPECT_EQ(view.attempt, 1);
  EXPECT_EQ(view.job, "7");
  EXPECT_EQ(view.step, 8);
  EXPECT_EQ(view.steps, 20);
  EXPECT_EQ(view.loss, 3.250004);
  EXPECT_EQ(view.tokens_per_s, 4096);
  EXPECT_EQ(view.eta_s, 24);
  EXPECT_NEAR(*view.job_left_s, 600, 5);
  EXPECT_EQ(view.last_commit_step, 5);
  EXPECT_NEAR(*view.last_commit_age_s, 0, 5);
  EXPECT_EQ(view.slowest_rank, 1);
  const Json json = to_json(view);
  EXPECT_EQ(json["state"], "running");
  EXPECT_EQ(json["eta_s"], 24);
  EXPECT_EQ(json.size(), 12U);
  EXPECT_TRUE(contains(to_line(view), "step 8/20  loss 3.25  4096 tok/s  ETA 24s"))
      << to_line(view);
}

TEST_F(RunViewTest, TellsHowItEnded) {
  end_leg({"failed", 5, 8});
  EXPECT_EQ(view_run(run(), unix_time_s()).state, "failed");
  EXPECT_TRUE(view_run(run(), unix_time_s()).has_ended());
  {
    EventLog event_log(run().event_log());
    event_log.open_newest_attempt([] { return true; });
    event_log.decision({.action = "requeue"}, {"7", 0, 0});
  }
  EXPECT_EQ(view_run(run(), unix_time_s()).state, "queued");
  EXPECT_FALSE(view_run(run(), unix_time_s()).has_ended());
  write_leg(1);
  EXPECT_EQ(view_run(run(), unix_time_s()).state, "running");
  EXPECT_EQ(view_run(run(), unix_time_s() + 100).state, "lost") << "no lock, and no word";
  end_leg({"done", 0, 20});
  EXPECT_EQ(view_run(run(), unix_time_s()).state, "done");
  EXPECT_EQ(view_run(run(), unix_time_s()).eta_s, 0);
}

TEST_F(RunViewTest, UnknownValuesAreNull) {
  const RunDirectory fresh{at("fresh")};
  fresh.prepare();
  write_status(fresh, "running", 0, 0, -1);

  const RunView view = view_run(fresh, unix_time_s());

  EXPECT_EQ(view.state, "new");
  const Json json = to_json(view);
  for (const char* key : {"step", "loss", "eta_s", "last_commit_step"})
    EXPECT_TRUE(json[key].is_null());
  EXPECT_EQ(error_of([&] { view_run({at("none")}, 1); }).kind(), ErrorKind::data);
}

}  // namespace
}  // namespace trireme::job
