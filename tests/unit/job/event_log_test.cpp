#include "job/event_log.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/files/file.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::job {
namespace {

class JournalTest : public Scratch {
 protected:
  [[nodiscard]] std::filesystem::path file() const { return at("journal.jsonl"); }

  void append_text(const std::string& text) const {
    std::ofstream(file(), std::ios::app | std::ios::binary) << text;
  }

  /// Writes two attempts of one job; the second one started without a job script.
  void write_two_legs() const {
    EventLog first(file());
    first.open([] { return true; });
    first.start({{"7", 0, 0}, {"n1", "n2"}, 4, {{"binary", "ab"}, {"config", "cd"}}, -1});
    first.ready({1, 2.5});
    first.commit(5);
    first.request({"stop", "SIGUSR2", 7});
    first.commit(7);
    first.end({"stopped", 75, 7});
    EventLog second(file());
    second.open([] { return true; });
    second.failure_report({2, "n2", "error", 4, 6, "disk \xff full"}, 1);
    second.start({{"7", 1, 0}, {"n1"}, 2, {}, 7});
  }
};

TEST_F(JournalTest, KeepsTheTimesOfStartsFailuresAndDecisions) {
  EventLog event_log(file());
  event_log.open([] { return true; });
  AttemptStart start{{"7", 0, 0}, {"n1"}, 2, {}, -1};
  start.job_start = 100;
  start.age_s = 2.5;
  event_log.start(start);
  FailureReport report{1, "n1", "error", 4, 6, "disk full"};
  report.time = 120.5;
  event_log.failure_report(report, 1);
  event_log.decision({.action = "requeue"}, {"7", 0, 0});

  const Attempt attempt = read_event_log(file()).attempts.at(0);

  EXPECT_EQ(attempt.start->job_start, 100);
  EXPECT_EQ(attempt.start->age_s, 2.5);
  EXPECT_EQ(attempt.failure_reports.at(0).time, 120.5);
  EXPECT_EQ(attempt.decided_at, attempt.last_at);
}

TEST_F(JournalTest, TellsWhatWasWritten) {
  write_two_legs();

  const EventLogContent content = read_event_log(file());

  ASSERT_EQ(content.attempts.size(), 2U);
  EXPECT_EQ(content.lines, 8);
  EXPECT_EQ(content.valid_bytes, content.bytes);
  EXPECT_EQ(content.committed(), 7);
  const Attempt& attempt = content.attempts[0];
  EXPECT_EQ(attempt.number, 1);
  EXPECT_EQ(attempt.start->attempt_id, (AttemptId{"7", 0, 0}));
  EXPECT_EQ(attempt.start->nodes, (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(attempt.start->ranks, 4);
  EXPECT_EQ(attempt.start->hashes.at("config"), "cd");
  EXPECT_EQ(attempt.start->resumed_from, -1);
  EXPECT_EQ(attempt.ready->start_s, 2.5);
  EXPECT_EQ(attempt.stop_request()->by, "SIGUSR2");
  EXPECT_EQ(attempt.end->exit_code, 75);
  ASSERT_EQ(attempt.failure_reports.size(), 1U) << "the failure report that the next attempt found";
  EXPECT_EQ(attempt.failure_reports[0].host, "n2");
  EXPECT_EQ(content.attempts[1].start->resumed_from, 7);
  EXPECT_FALSE(content.attempts[1].end);
  // Parses each line separately, like another program reads it.
  std::ifstream lines(file());
  std::int64_t seq = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json json = parse_json(line, "line");
    EXPECT_EQ(json["seq"], ++seq);
    EXPECT_GT(json["time"].get<double>(), 1.7e9);
    EXPECT_TRUE(json.contains("leg") && json.contains("event"));
  }
}

TEST_F(JournalTest, AllAttemptsShareTheIdOfTheRun) {
  EXPECT_EQ(read_event_log(file()).run_id(), "");
  EventLog first(file());
  first.open([] { return true; });
  first.start({{"7", 0, 0}, {"n1"}, 4, {}, -1});
  const std::string id = read_event_log(file()).run_id();
  EXPECT_EQ(id.size(), 32U);

  EventLog second(file());
  second.open([] { return true; });
  second.start({{"8", 0, 0}, {"n2"}, 2, {}, 7});

  EXPECT_EQ(read_event_log(file()).run_id(), id);
  std::filesystem::remove(file());
  std::this_thread::sleep_for(std::chrono::milliseconds(2));  // times are written in milliseconds
  EventLog other(file());
  other.open([] { return true; });
  other.start({{"7", 0, 0}, {"n1"}, 4, {}, -1});
  EXPECT_NE(read_event_log(file()).run_id(), id) << "a new run in the same directory";
}

TEST_F(JournalTest, AnyBeginningCountsUpToItsLastWholeLine) {
  write_two_legs();
  const std::string whole = read_file(file());

  for (std::size_t size = 0; size <= whole.size(); ++size) {
    std::ofstream(file(), std::ios::binary) << whole.substr(0, size);
    const EventLogContent content = read_event_log(file());
    const auto lines = std::count(whole.begin(), whole.begin() + static_cast<long>(size), '\n');
    ASSERT_EQ(content.lines, lines) << size;
  }
}

TEST_F(JournalTest, TheNextWriterCutsOffTheLinesAfterADamagedOne) {
  write_two_legs();
  const std::string whole = read_file(file());
  const std::size_t third = whole.find('\n', whole.find('\n') + 1) + 1;
  for (const std::string& damage :
       {std::string("garbage\n"), std::string("{\"seq\": 3}\n"), std::string(64, '\0') + "\n",
        std::string("{\"seq\": 9, \"time\": 1, \"leg\": 1, \"event\": \"commit\", \"step\": 1}\n"),
        std::string("{\"seq\": 3, \"time\": 1, \"leg\": 1, \"event\": \"commit\"}\n"),
        std::string("{\"seq\": 3, \"time\": 1, \"leg\": 0, \"event\": \"commit\", \"step\": 1}\n"),
        std::string("\n")}) {
    std::ofstream(file(), std::ios::binary)
        << whole.substr(0, third) << damage << whole.substr(third);

    EXPECT_EQ(read_event_log(file()).lines, 2) << damage;
    EventLog next(file());
    next.open([] { return true; });
    next.start({{"8", 0, 0}, {"n3"}, 1, {}, -1});

    const EventLogContent content = read_event_log(file());
    EXPECT_EQ(content.lines, 3) << damage;
    EXPECT_EQ(content.bytes, content.valid_bytes);
    EXPECT_EQ(content.attempts.back().start->attempt_id.job, "8");
    EXPECT_EQ(content.attempts.back().number, 2);
  }
}

TEST_F(JournalTest, AnEventOfANewerVersionIsASignOfLife) {
  write_two_legs();
  append_text("{\"seq\": 9, \"time\": 4e9, \"leg\": 2, \"event\": \"dance\"}\n");

  const EventLogContent content = read_event_log(file());

  EXPECT_EQ(content.lines, 9);
  EXPECT_EQ(content.attempts.back().last_at, 4e9);
}

TEST_F(JournalTest, AFencedWritersLinesArePassedOver) {
  bool is_held = true;
  EventLog old(file());
  old.open([&] { return is_held; });
  old.start({{"7", 0, 0}, {"n1"}, 1, {}, -1});
  EventLog young(file());
  young.open([] { return true; });
  old.commit(5);  // it had not detected the new owner yet
  young.start({{"7", 1, 0}, {"n2"}, 1, {}, -1});
  old.commit(6);
  young.commit(3);
  is_held = false;
  old.commit(7);

  const EventLogContent content = read_event_log(file());

  ASSERT_EQ(content.attempts.size(), 2U);
  EXPECT_EQ(content.valid_bytes, content.bytes);
  EXPECT_EQ(content.attempts[1].committed, 3);
  EXPECT_EQ(content.attempts[0].committed, 5);
  EXPECT_EQ(read_file(file()).find("\"step\":7"), std::string::npos);
}

TEST_F(JournalTest, ThreadsWriteWholeLines) {
  EventLog event_log(file());
  event_log.open([] { return true; });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) event_log.commit(i);
    });
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(read_event_log(file()).lines, 20);
}

TEST_F(JournalTest, IsInertUntilItIsOpened) {
  EventLog event_log(file());
  event_log.commit(3);

  EXPECT_FALSE(event_log.may_write());
  EXPECT_FALSE(std::filesystem::exists(file()));
  EXPECT_EQ(read_event_log(file()).lines, 0);
}

}  // namespace
}  // namespace trireme::job
