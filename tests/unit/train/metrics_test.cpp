#include "train/report/metrics.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "comm/thread/thread_world.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/timer.hpp"
#include "support/combined_measures.hpp"
#include "train/control/step_vote.hpp"
#include "train/report/jsonl_sink.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::train {
namespace {

class MetricsTest : public Scratch {
 protected:
  std::vector<Json> lines() const {
    std::vector<Json> result;
    std::ifstream file(at("metrics.jsonl"));
    for (std::string line; std::getline(file, line);)
      result.push_back(parse_json(line, "metrics.jsonl"));
    return result;
  }

  /// Metrics of one rank with a few measures; the file is the sink of rank 0.
  struct Own {
    Own(comm::Communicator& world, const job::RunDirectory& folder,
        const ComputeRates& rates = {1, 1})
        : metrics(world, measures, rates) {
      if (world.rank() == 0) metrics.add(std::make_unique<JsonlSink>(SinkSetup{.folder = folder}));
    }

    Measures measures;
    Measures::Id save_s = measures.declare({"save_s"});
    Measures::Id compute_s = measures.declare(
        {.name = "compute_s", .most_rank = "compute_max_rank", .most = "compute_max_s"});
    Measures::Id peer_wait_s = measures.declare(
        {.name = "peer_wait_s", .least_rank = "slowest_rank", .least = "peer_wait_min_s"});
    Measures::Id mem_peak_bytes = measures.declare({"mem_peak_bytes", Combine::max, true});
    Metrics metrics;
  };
};

TEST_F(MetricsTest, ANormIsTheRootOfTheSquaresOfAllRanksAndOnlyInTheLinesOfItsSteps) {
  comm::run_ranks(2, [&](comm::Communicator& world) {
    Own own(world, {at("")});
    const auto norm = own.measures.declare(
        {.name = "grad_norm/head", .combine = Combine::norm, .occasional = true});
    const auto later = own.measures.declare({"later_s"});
    own.measures.record(norm, world.rank() == 0 ? 9 : 16);
    own.measures.record(later, 1);
    EXPECT_FALSE(own.metrics.report({1, 1, 1, 1, 0.5, 0.1, 1.0, false}, 1));
    const Metrics::Numbers numbers = own.metrics.begin_reduction();
    own.measures.record(later, 2);  // the next step, while the first report is reduced
    EXPECT_FALSE(own.metrics.report({2, 2, 1, 1, 0.5, 0.1, 1.0, false}, 2));
    world
        .all_reduce({.input = numbers.sums.data(),
                     .output = numbers.sums.data(),
                     .count = numbers.sums.size(),
                     .dtype = DType::f64,
                     .op = comm::ReduceOp::sum,
                     .tag = "test"})
        ->wait();
    const auto first = own.metrics.reduced();
    const auto second = own.metrics.flush();
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->value("grad_norm/head"), 5);
    EXPECT_EQ(first->value("later_s"), 1);
    EXPECT_EQ(second->value_or("grad_norm/head", -1), -1);
    EXPECT_EQ(second->value("later_s"), 2);
  });
}

TEST_F(MetricsTest, OneLineHoldsSumsOfLossTheLastRanksEndMeansOfPartsAndTheLargestMemory) {
  comm::run_ranks(3, [&](comm::Communicator& world) {
    Own own(world, {at("")}, {10.0, 1000.0});
    const double r = world.rank();
    own.metrics.loss(10 + r, 4, 4);
    own.measures.record(own.save_s, r / 2);
    own.measures.record(own.save_s, r / 2);  // from a second step
    own.measures.record(own.peer_wait_s, r == 1 ? 0.1 : 2);
    own.measures.record(own.mem_peak_bytes, 100 * r);
    EXPECT_FALSE(own.metrics.report({8, 800, 120, 2, 0.5, 0.1, 1.0, false}, 4 + r));
    const auto line = own.metrics.flush();
    ASSERT_TRUE(line);
    EXPECT_EQ(line->value("loss"), (10.0 + 11 + 12) / 12);
    EXPECT_EQ(line->value("tokens_per_s"), 120 / 3.0);
    EXPECT_EQ(line->value("slowest_rank"), 1);  // rank 1 waited least
    EXPECT_FALSE(own.metrics.flush());
  });

  ASSERT_EQ(lines().size(), 1U);
  const Json line = lines().front();
  EXPECT_EQ(line["step"], 8);
  EXPECT_EQ(line["loss"], 33.0 / 12);
  EXPECT_EQ(line["num_targets"], 12);
  EXPECT_EQ(line["step_time_s"], 3.0);  // rank 2 ended two steps after 6 s
  EXPECT_EQ(line["save_s"], 0.5);
  EXPECT_NEAR(line["time"].get<double>(), static_cast<double>(std::time(nullptr)), 60);
  EXPECT_EQ(line["mem_peak_bytes"], 200);
  EXPECT_EQ(line["mfu"], 40.0 * 10 / 1000);
}

TEST_F(MetricsTest, StepTimesAddUpToTheEndOfTheLastRank) {
  comm::run_ranks(2, [&](comm::Communicator& world) {
    Own own(world, {at("")});
    double sum = 0;
    for (std::int64_t step = 1; step <= 4; ++step) {
      const bool late = world.rank() == step % 2;  // a different rank ends last in each step
      own.metrics.report({step, step, 1, 1, 0, 1e-3, 1, false},
                         static_cast<double>(step) + (late ? 0.5 : 0));
      sum += own.metrics.flush()->value("step_time_s");
    }
    EXPECT_DOUBLE_EQ(sum, 4.5);
  });
}

TEST_F(MetricsTest, ALineComesOneReportLaterAndNumbersRoundTrip) {
  comm::run_ranks(1, [&](comm::Communicator& world) {
    Own own(world, {at("")});
    own.metrics.loss(0.1, 3, 3);
    EXPECT_FALSE(own.metrics.report({1, 1, 1, 1, std::nan(""), 1e-3, 1, true}, 1));
    EXPECT_TRUE(lines().empty());
    own.metrics.loss(0.1, 3, 3);
    const auto first = own.metrics.report({2, 2, 1, 1, 1.0 / 3, 1e-3, 1, false}, 1);
    ASSERT_TRUE(first);
    EXPECT_EQ(first->value("step"), 1);
    EXPECT_EQ(lines().size(), 1U);
    own.metrics.flush();
  });

  ASSERT_EQ(lines().size(), 2U);
  EXPECT_TRUE(lines()[0]["grad_norm"].is_null());  // JSON has no NaN
  EXPECT_EQ(lines()[0]["skipped"], true);
  EXPECT_EQ(lines()[1]["grad_norm"].get<double>(), 1.0 / 3);
  EXPECT_EQ(lines()[1]["loss"].get<double>(), 0.1 / 3);
}

TEST_F(MetricsTest, ASumInAVoteHasTheBitsOfASumInRankOrder) {
  const std::vector<double> losses{0.1, 1e16, -1e16, 0.7, 1.0 / 3};
  double in_order = 0;
  for (const double loss : losses) in_order += loss;
  comm::run_ranks(5, [&](comm::Communicator& world) {
    Own own(world, {at("")});
    StepVote vote(world);
    own.metrics.loss(losses[static_cast<std::size_t>(world.rank())], 1, 1);
    own.metrics.report({1, 1, 1, 1, 0, 1e-3, 1, false}, 1);
    const Metrics::Numbers numbers = own.metrics.begin_reduction();
    EXPECT_EQ(numbers.sums.size() + numbers.maxima.size(), 10U) << "not a number for each rank";
    vote.post({.stop = world.rank() == 3, .trace = ~std::uint64_t{0}},
              {numbers.sums, numbers.maxima});
    EXPECT_FALSE(own.metrics.begin_reduction().sums.data()) << "a report travels once";
    const StepVote::Result result = vote.take();
    EXPECT_TRUE(result.stop);
    EXPECT_EQ(result.trace, std::uint64_t{0} - 5);
    const auto line = own.metrics.reduced();
    ASSERT_TRUE(line);
    EXPECT_EQ(line->value("loss"), in_order / 5);
    EXPECT_EQ(line->value("num_targets"), 5);
    EXPECT_FALSE(own.metrics.reduced());
  });
}

TEST_F(MetricsTest, TheSlowestRankHasAHostAPhaseAndAnExcess) {
  comm::run_ranks(4, [&](comm::Communicator& world) {
    Own own(world, {at("")});
    own.metrics.set_hosts({"n1", "n1", "n2", "n2"});
    const bool slow = world.rank() == 2;
    own.measures.record(own.compute_s, slow ? 0.7 : 0.2);
    own.measures.record(own.peer_wait_s, slow ? 0.1 : 0.6);
    own.metrics.report({1, 1, 1, 1, 0, 1e-3, 1, false}, 1);
    const auto line = own.metrics.flush();
    EXPECT_EQ(line->value("slowest_rank"), 2);
    EXPECT_EQ(line->text("slowest_host"), "n2");
    EXPECT_EQ(line->text("slowest_phase"), "compute");
    EXPECT_NEAR(line->value("slowest_excess_s"), 0.5, 1e-5);

    own.measures.record(own.compute_s, 0.2);  // no rank is slow; the transfers take the time
    own.measures.record(own.peer_wait_s, 0.8);
    own.metrics.report({2, 1, 1, 1, 0, 1e-3, 1, false}, 2);
    EXPECT_EQ(own.metrics.flush()->text("slowest_phase"), "communication");
  });
  EXPECT_EQ(lines().front()["slowest_host"], "n2");
  EXPECT_EQ(lines().front()["slowest_phase"], "compute");
}

TEST_F(MetricsTest, NumbersOfEachRankAreGatheredAtAnInterval) {
  comm::run_ranks(3, [&](comm::Communicator& world) {
    Own own(world, {at("")});
    own.metrics.set_hosts({"a", "b", "c"});
    if (world.rank() == 0)
      own.metrics.add(std::make_shared<RanksSink>(SinkSetup{.folder = {at("")}, .attempt = 4}));
    own.metrics.report_ranks(2, {own.compute_s, own.mem_peak_bytes});
    for (std::int64_t step = 1; step <= 4; ++step) {
      own.measures.record(own.compute_s, static_cast<double>(step + world.rank()));
      own.measures.record(own.mem_peak_bytes, 7);
      own.metrics.report({step, 1, 1, 1, 0, 1e-3, 1, false}, static_cast<double>(step));
    }
    own.metrics.flush();
  });
  std::ifstream file(at("ranks.jsonl"));
  std::vector<std::string> rows;
  for (std::string row; std::getline(file, row);) rows.push_back(row);
  ASSERT_EQ(rows.size(), 6U);
  EXPECT_EQ(rows[5],
            R"({"step":4,"rank":2,"host":"c","compute_s":5.5,"mem_peak_bytes":7,"attempt":4})")
      << "the mean over steps 3 and 4";
}

TEST_F(MetricsTest, AFrozenFileDoesNotStopTheStepsAndAllLinesArrive) {
  // A pipe without a reader blocks the writer in open(), like a frozen network file system.
  ASSERT_EQ(::mkfifo(at("metrics.jsonl").c_str(), 0600), 0);
  std::string text;
  std::thread reader;
  {
    comm::run_ranks(1, [&](comm::Communicator& world) {
      Measures measures;
      WriterThread files;
      Metrics metrics(world, measures, {1, 1}, &files);
      std::filesystem::rename(at("metrics.jsonl"), at("pipe"));
      metrics.add(std::make_unique<JsonlSink>(SinkSetup{.folder = {at("")}}));
      std::filesystem::rename(at("pipe"), at("metrics.jsonl"));
      const Timer timer;
      for (std::int64_t step = 1; step <= 300; ++step)
        metrics.report({step, step, 1, 1, 0, 1e-3, 1, false}, static_cast<double>(step));
      metrics.flush();
      EXPECT_LT(timer.seconds(), 2.0);
      EXPECT_FALSE(files.drain_for(0.05)) << "the pipe blocks the writer";
      reader = std::thread([&] {
        const Fd fd(::open(at("metrics.jsonl").c_str(), O_RDWR));  // keeps the pipe open
        std::array<char, 4096> buffer{};
        while (std::count(text.begin(), text.end(), '\n') < 300) {
          const ssize_t size = ::read(fd.get(), buffer.data(), buffer.size());
          if (size > 0) text.append(buffer.data(), static_cast<std::size_t>(size));
        }
      });
      files.drain();
    });
  }
  reader.join();
  std::istringstream lines(text);
  std::int64_t step = 0;
  for (std::string line; std::getline(lines, line);)
    EXPECT_EQ(parse_json(line, "line")["step"], ++step);
  EXPECT_EQ(step, 300);
}

TEST_F(MetricsTest, AnUpdateWithoutTargetsHasNoLoss) {
  comm::run_ranks(1, [&](comm::Communicator& world) {
    Own own(world, {at("")});
    own.metrics.loss(0, 0, 0);
    own.metrics.report({1, 1, 1, 1, 0, 1e-3, 1, false}, 1);
    own.metrics.flush();
  });

  EXPECT_TRUE(lines().front()["loss"].is_null());
}

TEST_F(MetricsTest, EventsGoToEverySink) {
  const std::filesystem::path second = at("second");
  std::filesystem::create_directory(second);
  comm::run_ranks(1, [&](comm::Communicator& world) {
    Own own(world, {at("")});
    own.metrics.add(std::make_unique<JsonlSink>(SinkSetup{.folder = {second}}));
    MetricsLine line{MetricsLine::Kind::end, {}};
    own.metrics.write(line.add("end_step", std::int64_t{9}).add("done", false).add("time_s", 2.5));
  });

  EXPECT_EQ(read_file(at("metrics.jsonl")),
            "{\"end_step\":9,\"done\":false,\"time_s\":2.5,\"attempt\":0}\n");
  EXPECT_EQ(read_file(second / "metrics.jsonl"), read_file(at("metrics.jsonl")));
}

TEST_F(MetricsTest, AHalfLineOfALostProcessIsCutOff) {
  std::ofstream(at("metrics.jsonl")) << "{\"step\":1}\n{\"step\":2,\"lo";
  comm::run_ranks(2, [&](comm::Communicator& world) {
    Own own(world, {at("")});
    MetricsLine line{MetricsLine::Kind::resumed, {}};
    own.metrics.write(line.add("resumed_from", std::int64_t{1}));
  });

  ASSERT_EQ(lines().size(), 2U);
  EXPECT_EQ(lines()[0]["step"], 1);
  EXPECT_EQ(lines()[1]["resumed_from"], 1);
}

TEST_F(MetricsTest, AFileThatCannotGrowIsAnError) {
  JsonlSink sink({.folder = {at("absent")}});
  EXPECT_EQ(error_of([&] { sink.write({}); }).kind(), ErrorKind::usage);
}

TEST(Measures, EachIsDeclaredOnce) {
  Measures measures;
  measures.declare({"save_s"});
  measures.declare({.name = "peer_wait_s", .least_rank = "slowest_rank"});
  EXPECT_EQ(error_of([&] { measures.declare({"save_s"}); }).kind(), ErrorKind::internal);
  EXPECT_EQ(error_of([&] { measures.declare({"slowest_rank"}); }).kind(), ErrorKind::internal);
  for (const char* taken : {"save_s", "slowest_rank", "load_s"}) {
    const Measure least{.name = "load_s", .least_rank = taken};
    EXPECT_EQ(error_of([&] { measures.declare(least); }).kind(), ErrorKind::internal) << taken;
  }
}

/// Returns the metrics of several ranks that each recorded their values.
std::vector<Metric> combined(Measures& measures, int ranks, double steps,
                             const std::function<void(double rank)>& record) {
  testing::CombinedMeasures all;
  for (int rank = 0; rank < ranks; ++rank) {
    record(rank);
    all.add(measures, rank);
  }
  return all.metrics(measures, steps);
}

TEST(Measures, AreCombinedAsDeclaredAndStartAnewAfterAPack) {
  Measures measures;
  const auto sum = measures.declare({"targets", Combine::sum, true});
  const auto weighted = measures.declare({"loss", Combine::weighted_mean});
  const auto mean = measures.declare({.name = "wait_s",
                                      .least_rank = "fastest",
                                      .least = "wait_min_s",
                                      .most_rank = "last",
                                      .most = "wait_max_s"});
  const auto most = measures.declare({"bytes", Combine::max});

  const std::vector<Metric> metrics = combined(measures, 3, /*steps=*/2, [&](double r) {
    for (int step = 0; step < 2; ++step) {
      measures.record(sum, 10 + r);
      measures.record(weighted, 4 * r, r);
      measures.record(mean, 3 - r);
      measures.record(most, 7 * r);
    }
  });

  const std::vector<std::pair<std::string, double>> expected{
      {"targets", 33},  // value of the last step
      {"loss", 4},     {"wait_s", 2},     {"fastest", 2}, {"wait_min_s", 1},
      {"last", 0},     {"wait_max_s", 3}, {"bytes", 14}};
  ASSERT_EQ(metrics.size(), expected.size());
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    EXPECT_EQ(metrics[i].name, expected[i].first);
    EXPECT_NEAR(metrics[i].value, expected[i].second, 1e-5) << metrics[i].name;
  }
  EXPECT_EQ(metrics[0].form, Metric::Form::whole);
}

TEST(Measures, AMaxMayBeNegative) {
  Measures measures;
  const auto most = measures.declare({"margin", Combine::max});
  const auto metrics =
      combined(measures, 2, 1, [&](double rank) { measures.record(most, rank == 0 ? -3 : -2); });
  EXPECT_EQ(metrics[0].value, -2);
}

TEST(RankedMax, KeepsTimeAndRankAndTheLowestOfEqualRanks) {
  for (const double seconds : {0.0, 1e-6, 0.25, 7999.0}) {
    for (const int rank : {0, 1, 4095, 1'000'000}) {
      const double packed = RankedMax::packed(seconds, rank);
      EXPECT_NEAR(RankedMax::seconds_of(packed), seconds, 1e-6);
      EXPECT_EQ(RankedMax::rank_of(packed), rank);
    }
  }
  EXPECT_GT(RankedMax::packed(1, 2), RankedMax::packed(1, 3));
  EXPECT_LT(RankedMax::packed(1, 0), RankedMax::packed(1.00001, 9));
}

TEST(Units, AreTheEndOfAName) {
  EXPECT_EQ(unit_of("save_s"), "s");
  EXPECT_EQ(unit_of("tokens_per_s"), "per_s");
  EXPECT_EQ(unit_of("mem_peak_bytes"), "bytes");
  EXPECT_EQ(unit_of("loss"), "");
}

}  // namespace
}  // namespace trireme::train
