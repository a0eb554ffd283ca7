#include "train/report/metrics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/thread/thread_world.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
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
    Measures::Id peer_wait_s =
        measures.declare({"peer_wait_s", Combine::mean, false, "slowest_rank"});
    Measures::Id mem_peak_bytes = measures.declare({"mem_peak_bytes", Combine::max, true});
    Metrics metrics;
  };
};

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
  measures.declare({"peer_wait_s", Combine::mean, false, "slowest_rank"});
  EXPECT_EQ(error_of([&] { measures.declare({"save_s"}); }).kind(), ErrorKind::internal);
  EXPECT_EQ(error_of([&] { measures.declare({"slowest_rank"}); }).kind(), ErrorKind::internal);
  for (const char* taken : {"save_s", "slowest_rank", "load_s"}) {
    const Measure least{"load_s", Combine::mean, false, taken};
    EXPECT_EQ(error_of([&] { measures.declare(least); }).kind(), ErrorKind::internal) << taken;
  }
}

TEST(Measures, AreCombinedAsDeclaredAndStartAnewAfterAPack) {
  Measures measures;
  const auto sum = measures.declare({"targets", Combine::sum, true});
  const auto weighted = measures.declare({"loss", Combine::weighted_mean});
  const auto mean = measures.declare({"wait_s", Combine::mean, false, "fastest"});
  const auto most = measures.declare({"bytes", Combine::max});
  std::vector<double> all(3 * measures.packed_size());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const auto r = static_cast<double>(rank);
    for (int step = 0; step < 2; ++step) {
      measures.record(sum, 10 + r);
      measures.record(weighted, 4 * r, r);
      measures.record(mean, 3 - r);
      measures.record(most, 7 * r);
    }
    measures.pack(std::span(all).subspan(rank * measures.packed_size(), measures.packed_size()));
  }

  const std::vector<Metric> metrics = measures.combine(all, /*steps=*/2);

  ASSERT_EQ(metrics.size(), 5U);
  EXPECT_EQ(metrics[0].value, 33);  // value of the last step
  EXPECT_EQ(metrics[0].form, Metric::Form::whole);
  EXPECT_EQ(metrics[1].value, 4);
  EXPECT_EQ(metrics[2].value, 2);  // mean over ranks and steps
  EXPECT_EQ(metrics[3].name, "fastest");
  EXPECT_EQ(metrics[3].value, 2);
  EXPECT_EQ(metrics[4].value, 14);
}

TEST(Measures, AMaxMayBeNegative) {
  Measures measures;
  const auto most = measures.declare({"margin", Combine::max});
  std::vector<double> all(2 * measures.packed_size());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    measures.record(most, rank == 0 ? -3 : -2);
    measures.pack(std::span(all).subspan(rank * measures.packed_size(), measures.packed_size()));
  }

  EXPECT_EQ(measures.combine(all, 1)[0].value, -2);
}

}  // namespace
}  // namespace trireme::train
