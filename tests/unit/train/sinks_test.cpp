#include "train/report/sinks.hpp"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>

#include "core/error.hpp"
#include "train/start/run_keys.hpp"
#include "train/state/resume.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::train {
namespace {

/// Keeps its setup and its lines, and fails where its key says so.
class RecordingSink final : public MetricsSink {
 public:
  struct Config {
    std::string recorder;

    template <class Self, class Visit>
    static void fields(Self& self, Visit&& visit) {
      visit("recorder", self.recorder, "place of the records; empty: off");
    }

    [[nodiscard]] bool on() const { return !recorder.empty(); }

    friend void check(const Config& config, Problems& problems) {
      if (config.recorder == "bad")
        problems.add("metrics.recorder", config.recorder, "must not be bad");
    }
  };

  explicit RecordingSink(const SinkSetup& setup) : place_(setup.own<Config>().recorder) {
    if (place_ == "refused") fail(ErrorKind::resource, "no connection");
    setups.push_back(setup);
  }

  void write(const MetricsLine& line) override {
    if (place_ == "lost") fail(ErrorKind::resource, "the connection is lost");
    kinds.push_back(line.kind);
  }

  static inline std::vector<SinkSetup> setups;
  static inline std::vector<MetricsLine::Kind> kinds;

 private:
  std::string place_;
};

constexpr std::array kRows{
    sink_row<RecordingSink>("recorder", "records for a test", SinkFailure::is_logged)};

class SinksTest : public Scratch {
 protected:
  void SetUp() override {
    Scratch::SetUp();
    RecordingSink::setups.clear();
    RecordingSink::kinds.clear();
    sink_fields(config_, kRows);
  }

  /// Sets the key of the recorder, and opens it if the configuration turns it on.
  std::vector<std::unique_ptr<MetricsSink>> record_at(const std::string& place) {
    config_.keys.at(0).value = place;
    return make_sinks(config_, setup_, kRows);
  }

  MetricsConfig config_{.sinks = "none", .keys = {}};
  SinkSetup setup_{.run_id = "5f", .task = "sft", .config = {{"optim.lr", "0.01"}}, .num_ranks = 8};
};

TEST_F(SinksTest, TheNamedOnesAreOpened) {
  for (const auto& [sinks, count, has_file] :
       {std::tuple{"jsonl,progress", 2U, true}, std::tuple{" progress , jsonl", 2U, true},
        std::tuple{"jsonl", 1U, true}, std::tuple{"progress", 1U, false},
        std::tuple{"none", 0U, false}}) {
    const job::RunDirectory folder{at(sinks)};
    std::filesystem::create_directory(folder.root);
    const auto opened = make_sinks({.sinks = sinks, .keys = {}}, {.folder = folder});
    for (const auto& sink : opened) sink->write({MetricsLine::Kind::end, {}});
    EXPECT_EQ(opened.size(), count) << sinks;
    EXPECT_EQ(std::filesystem::exists(folder.metrics()), has_file) << sinks;
  }
}

TEST_F(SinksTest, ASinkGetsTheFactsOfTheRunAndItsOwnKeys) {
  const auto opened = record_at("host:80");

  ASSERT_EQ(RecordingSink::setups.size(), 1U) << "its key turned it on";
  const SinkSetup& setup = RecordingSink::setups[0];
  EXPECT_EQ(setup.own<RecordingSink::Config>().recorder, "host:80");
  EXPECT_EQ(setup.run_id, "5f");
  EXPECT_EQ(setup.task, "sft");
  EXPECT_EQ(setup.config.at("optim.lr"), "0.01");
  EXPECT_EQ(setup.num_ranks, 8);
  for (const auto kind : {MetricsLine::Kind::step, MetricsLine::Kind::end})
    opened.at(0)->write({kind, {}});
  EXPECT_EQ(RecordingSink::kinds, (std::vector{MetricsLine::Kind::step, MetricsLine::Kind::end}));
  EXPECT_TRUE(record_at("").empty());
}

TEST_F(SinksTest, ASinkThatFailsIsLeftOutUnlessItIsPartOfTheRecord) {
  for (const char* place : {"refused", "lost"}) {
    const auto opened = record_at(place);
    ASSERT_EQ(opened.size(), 1U);
    for (int i = 0; i < 2; ++i) EXPECT_NO_THROW(opened[0]->write({})) << place;
    opened[0]->pause();
  }
  EXPECT_TRUE(RecordingSink::kinds.empty());

  const auto jsonl = make_sinks({.sinks = "jsonl", .keys = {}}, {.folder = {at("absent")}});
  EXPECT_EQ(error_of([&] { jsonl.at(0)->write({}); }).kind(), ErrorKind::usage);
}

TEST_F(SinksTest, KeysOfSinksAreKeysOfTheRun) {
  const std::vector<Field> fields = sink_fields(config_, kRows);
  ASSERT_EQ(fields.size(), 6U);
  EXPECT_TRUE(contains(fields[0].help, "recorder: records for a test")) << fields[0].help;
  EXPECT_EQ(fields[5].key, "metrics.recorder");
  config::ConfigSet keys(fields);

  keys.set("metrics.recorder", "bad", "--metrics.recorder");
  check_sinks(config_, keys.problems(), kRows);

  EXPECT_EQ(
      keys.problems().lines(),
      (std::vector<std::string>{"metrics.recorder = bad, must not be bad (--metrics.recorder)"}));
}

TEST(MetricsKeys, AnUnknownSinkIsOneErrorWithTheKnownOnes) {
  const std::vector<std::pair<const char*, std::string>> refused{
      {"jsonl,jsnl",
       "jsnl, must be one of jsonl, ranks, tensorboard, wandb, prometheus, textfile, progress, none; did you mean 'jsonl'?"},
      {"",
       "'', must be one of jsonl, ranks, tensorboard, wandb, prometheus, textfile, progress, none"},
      {"none,jsonl", "none,jsonl, must be either none or names of sinks"}};
  for (const auto& [given, expected] : refused) {
    RunConfig config;
    const auto keys = make_run_keys(config);
    keys->set("metrics.sinks", given, "--metrics.sinks");
    finish_run_keys(config, *keys);
    EXPECT_EQ(keys->problems().lines(),
              (std::vector{formatted("metrics.sinks = {} (--metrics.sinks)", expected)}));
  }
}

TEST(MetricsKeys, OtherSinksAreTheSameRun) {
  RunConfig config;
  const auto keys = make_run_keys(config);
  const std::string identity = run_identity(*keys, "data");
  RunValues values;
  values.config = config_texts(*keys);

  keys->set("metrics.sinks", "none", "--metrics.sinks");

  EXPECT_EQ(config.metrics.sinks, "none");
  EXPECT_EQ(run_identity(*keys, "data"), identity);
  EXPECT_NO_THROW(check_same_run(values, *keys, "run"));
  values.config.erase("metrics.sinks");
  EXPECT_NO_THROW(check_same_run(values, *keys, "a run from before the key"));
}

}  // namespace
}  // namespace trireme::train
