/// Tests the files and the endpoint of the sinks for TensorBoard, Weights & Biases and Prometheus.

#include <gtest/gtest.h>
#include <zlib.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>

#include "core/exponential_buckets.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/hash/crc32c.hpp"
#include "train/health/slow_rank.hpp"
#include "train/report/jsonl_sink.hpp"
#include "train/report/prometheus_sink.hpp"
#include "train/report/tensorboard_sink.hpp"
#include "train/report/wandb_sink.hpp"
#include "unit/core/scratch.hpp"
#include "unit/http/http_client.hpp"

namespace trireme::train {
namespace {

MetricsLine step_line(std::int64_t step, double loss) {
  MetricsLine line;
  line.add("step", step).add("time", 1e9).add("loss", loss).add("step_time_s", 0.5);
  line.add("compute_s", 0.25).add("data_wait_s", 0.1).add("mfu", 0.4).add("tokens", step * 10);
  line.add("save_s", 0.0).add("slowest_excess_s", 0.05).add_text("slowest_host", "n1");
  return line;
}

MetricsLine valid_line(std::int64_t step, double loss) {
  MetricsLine line{MetricsLine::Kind::validation};
  return line.add("eval_step", step).add("valid_loss", loss);
}

MetricsLine end_line() {
  MetricsLine line{MetricsLine::Kind::end};
  return line.add("done", true).add("time_s", 3.0);
}

class FormatSinks : public Scratch {
 protected:
  SinkSetup setup(std::int64_t attempt = 0, std::int64_t first_step = 0) const {
    return {.folder = {at("run \"1\"")},
            .run_id = "0123456789abcdef",
            .task = "pretrain",
            .config = {{"optim.lr", "0.01"}, {"data.path", std::string(40'000, 'x')}},
            .job = "42",
            .attempt = attempt,
            .first_step = first_step,
            .total_steps = 100};
  }

  void SetUp() override {
    Scratch::SetUp();
    std::filesystem::create_directories(at("run \"1\""));
  }

  std::vector<std::filesystem::path> files(const std::string& folder) const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(at("run \"1\"") / folder)) {
      if (entry.is_regular_file()) found.push_back(entry.path());
    }
    return found;
  }
};

std::uint32_t word_at(const std::string& text, std::size_t at) {
  std::uint32_t word = 0;
  std::memcpy(&word, text.data() + at, sizeof word);
  return word;
}

/// Returns the records of a TFRecord file and checks their checksums.
std::vector<std::string> tf_records(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  const auto masked = [](std::string_view bytes) {
    return std::rotr(crc32c_portable(std::as_bytes(std::span(bytes))), 15) + 0xa282ead8U;
  };
  std::vector<std::string> records;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = word_at(text, at);
    EXPECT_EQ(word_at(text, at + 8), masked(std::string_view(text).substr(at, 8)));
    records.push_back(text.substr(at + 12, size));
    EXPECT_EQ(word_at(text, at + 12 + size), masked(records.back()));
    at += 16 + size;
  }
  return records;
}

TEST_F(FormatSinks, TensorboardFilesHaveCheckedRecordsAndAStartAfterAResume) {
  {
    TensorboardSink sink(setup());
    sink.write(step_line(1, 2.5));
    sink.write(valid_line(1, 2.25));
    sink.write(end_line());
  }
  ASSERT_EQ(files("tensorboard").size(), 1U);
  const auto records = tf_records(files("tensorboard")[0]);
  ASSERT_EQ(records.size(), 5U) << "version, hyperparameters, configuration, two lines";
  EXPECT_TRUE(contains(records[0], "brain.Event:2"));
  EXPECT_TRUE(contains(records[1], "_hparams_/session_start_info"));
  EXPECT_TRUE(contains(records[2], "| optim.lr | 0.01 |"));
  const float loss = 2.5;
  EXPECT_TRUE(contains(records[3], std::string("\x0a\x04loss\x15") +
                                       std::string(reinterpret_cast<const char*>(&loss), 4)));
  EXPECT_FALSE(contains(records[3], "slowest_host")) << "a text is no scalar";
  EXPECT_TRUE(contains(records[4], "valid_loss"));

  TensorboardSink resumed(setup(1, 1));
  ASSERT_EQ(files("tensorboard").size(), 2U);
  for (const auto& file : files("tensorboard")) {
    const auto all = tf_records(file);
    if (contains(all[1], "_hparams_")) continue;
    ASSERT_EQ(all.size(), 5U) << "version, two starts, hyperparameters, configuration";
    // Step 2 and SessionLog{status: START}. TensorBoard ignores the first START that it reads.
    for (const std::size_t i : {1, 2})
      EXPECT_TRUE(all[i].ends_with(std::string("\x10\x02\x3a\x02\x08\x01", 6)));
    return;
  }
  FAIL() << "no file of the resumed run";
}

/// Returns the records of a LevelDB log with the header of Weights & Biases, and checks them.
std::vector<std::string> wandb_records(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  EXPECT_TRUE(text.starts_with(std::string(":W&B\xe1\xbe\0", 7)));
  std::vector<std::string> records;
  for (std::size_t at = 7; at < text.size();) {
    const std::size_t left = 32768 - at % 32768;
    if (left < 7) {
      at += left;
      continue;
    }
    const std::size_t size = word_at(text, at + 4) & 0xffff;
    const auto type = static_cast<unsigned char>(text[at + 6]);
    const std::string part = text.substr(at + 7, size);
    EXPECT_EQ(word_at(text, at),
              ::crc32(::crc32(0, &type, 1), reinterpret_cast<const Bytef*>(part.data()),
                      static_cast<uInt>(part.size())));
    if (type == 1 || type == 2) records.emplace_back();
    records.back() += part;
    at += 7 + size;
  }
  return records;
}

TEST_F(FormatSinks, WandbHasOneFileForAllAttemptsWithoutDoubleSteps) {
  {
    WandbSink sink(setup());
    for (std::int64_t step = 1; step <= 3; ++step) sink.write(step_line(step, 0.5));
    sink.write(valid_line(4, 0.25));
    sink.write(step_line(4, 0.5));
    sink.write(end_line());
  }
  ASSERT_EQ(files("wandb").size(), 1U);
  const std::filesystem::path file = files("wandb")[0];
  EXPECT_TRUE(contains(file.string(), "/wandb/offline-run-"));
  EXPECT_EQ(file.filename(), "run-01234567.wandb");
  auto records = wandb_records(file);
  ASSERT_EQ(records.size(), 9U) << "version, run, four rows, summary, exit, final";
  EXPECT_GT(records[1].size(), 40'000U) << "a record over two blocks";
  EXPECT_TRUE(contains(records[5], "valid_loss")) << "the validation joins the row of its step";
  EXPECT_TRUE(contains(records[6], "valid_loss"));

  std::ofstream(file, std::ios::app) << "torn";
  {
    WandbSink resumed(setup(1, 2));
    records = wandb_records(file);
    ASSERT_EQ(records.size(), 4U) << "version, run, steps 1 and 2";
    resumed.write(step_line(3, 0.125));
  }
  records = wandb_records(file);
  ASSERT_EQ(records.size(), 5U);
  EXPECT_TRUE(contains(records[4], "0.125"));
}

TEST_F(FormatSinks, PrometheusServesTheNumbersOfTheRun) {
  SinkSetup one = setup(3, 10);
  one.keys = own_keys<PrometheusSink::Config>();
  one.keys.at(0).value = std::string(":0");
  const std::filesystem::path targets = at("run \"1\"") / "prometheus_sd.json";
  {
    PrometheusSink sink(one);
    const Json found = read_json(targets, {});
    const std::string target = found[0]["targets"][0];
    ASSERT_TRUE(target.starts_with("127.0.0.1:")) << target;
    const auto port = static_cast<std::uint16_t>(std::stoi(target.substr(10)));
    sink.write(step_line(11, 2.5));
    sink.write(step_line(12, std::nan("")));
    MetricsLine commit{MetricsLine::Kind::commit};
    sink.write(commit.add("committed_step", std::int64_t{12}).add("time", 1e9));
    const auto get = [&](const std::string& path, const std::string& host) {
      testing::HttpClient client(port);
      EXPECT_TRUE(client.send("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"));
      return client.answer();
    };
    const auto answer = get("/metrics", target);
    EXPECT_EQ(answer.status, 200);
    const std::string labels = R"({run="run \"1\"",job="42"})";
    for (const std::string& line : std::vector<std::string>{
             "trireme_step" + labels + " 12", "trireme_steps" + labels + " 100",
             "trireme_loss" + labels + " NaN", "trireme_tokens_total" + labels + " 120",
             "trireme_restarts_total" + labels + " 3", "trireme_mfu_ratio" + labels + " 0.4",
             "trireme_last_commit_time_seconds" + labels + " 1e+09",
             "trireme_slowest_rank_excess_ratio" + labels + " 0.1",
             "trireme_step_seconds_count" + labels + " 2",
             "trireme_step_seconds_sum" + labels + " 1", "trireme_save_seconds" + labels + " 0",
             R"(trireme_phase_seconds_total{run="run \"1\"",job="42",phase="compute"} 0.5)",
             R"(trireme_step_seconds_bucket{run="run \"1\"",job="42",le="0.2"} 0)",
             R"(trireme_step_seconds_bucket{run="run \"1\"",job="42",le="+Inf"} 2)"})
      EXPECT_TRUE(contains(answer.body, "\n" + line + "\n")) << line << "\n" << answer.body;
    EXPECT_EQ(get("/metrics", "evil.example").status, 403);
    EXPECT_EQ(get("/", target).status, 404);

    std::set<std::string> families;  // each family is declared once
    std::istringstream lines(answer.body);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("# TYPE ")) {
        EXPECT_TRUE(families.insert(line).second) << line;
      }
    }
    one.keys.at(0).value = target;
    EXPECT_TRUE(contains(error_of([&] { PrometheusSink taken(one); }).what(), "metrics.listen"));
  }
  EXPECT_FALSE(std::filesystem::exists(targets));
}

TEST_F(FormatSinks, RunsOfOneNameWithoutAJobHaveTextfilesAndLabelsOfTheirOwn) {
  SinkSetup one = setup();
  one.keys = own_keys<PrometheusFileSink::Config>();
  one.keys.at(0).value = at("").string();
  one.job = "";
  one.folder.root = at("a/first");
  one.run_id = "0123456789abcdef";
  SinkSetup other = one;
  other.folder.root = at("b/first");
  other.run_id = "fedcba9876543210";

  const PrometheusFileSink sink(one);
  const PrometheusFileSink second(other);

  EXPECT_TRUE(contains(read_file(at("trireme-first-01234567.prom")), R"(run_id="01234567")"));
  EXPECT_TRUE(contains(read_file(at("trireme-first-fedcba98.prom")), R"(run_id="fedcba98")"));
}

TEST_F(FormatSinks, NormsOfLayersAreLabelsForPrometheusAndTagsForTensorboard) {
  MetricsLine line = step_line(10, 2.5);
  line.add("grad_norm/embedding", 0.5).add("grad_norm/layer_00", 0.25);
  line.add("weight_norm/embedding", 8.0);
  PrometheusText text(setup());
  text.add(line);
  text.add(step_line(11, 2.5));

  const std::string page = text.text();

  EXPECT_TRUE(
      contains(page, R"(trireme_layer_grad_norm{run="run \"1\"",job="42",layer="layer_00"} 0.25)"))
      << page;
  EXPECT_TRUE(contains(page, "# TYPE trireme_layer_weight_norm gauge"));
  EXPECT_FALSE(contains(page, "norm/"));
  TensorboardSink sink(setup());
  sink.write(line);
  EXPECT_TRUE(contains(tf_records(files("tensorboard")[0]).back(), "grad_norm/layer_00"));
}

TEST_F(FormatSinks, AHistogramIsInTensorboardAndWandbAndInNoOtherSink) {
  MetricsLine line = step_line(10, 2.5);
  std::vector<double> counts(ExponentialBuckets::kNum);
  const std::size_t last = ExponentialBuckets::kPerSign + 100;
  counts[last - 2] = 3;
  counts[last] = 4;
  line.metrics.push_back({"weights/layer_00", 0, Metric::Form::histogram, {}, counts});
  PrometheusText text(setup());
  text.add(line);
  EXPECT_FALSE(contains(text.text(), "weights"));
  JsonlSink(setup()).write(line);
  EXPECT_FALSE(contains(read_file(setup().folder.metrics()), "weights"));

  TensorboardSink(setup()).write(line);
  WandbSink(setup()).write(line);

  const auto doubles = [](const std::vector<double>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()),
                       values.size() * sizeof(double));
  };
  const std::vector<double> borders{
      ExponentialBuckets::border(last - 2), ExponentialBuckets::border(last - 1),
      ExponentialBuckets::border(last), ExponentialBuckets::border(last + 1)};
  const std::string record = tf_records(files("tensorboard")[0]).back();
  EXPECT_TRUE(contains(record, "\x32\x20" + doubles(borders))) << "field 6: limits";
  EXPECT_TRUE(contains(record, "\x3a\x20" + doubles({0, 3, 0, 4}))) << "field 7: counts";
  const std::string row = wandb_records(files("wandb")[0]).back();
  EXPECT_TRUE(contains(row, R"("_type":"histogram")")) << row;
  EXPECT_TRUE(contains(row, R"("values":[3.0,0.0,4.0])")) << row;
}

TEST_F(FormatSinks, SamplesAreTextsOfTensorboardAndLinesOfSamplesJsonl) {
  MetricsLine line{MetricsLine::Kind::sample};
  line.add("sample_step", std::int64_t{20}).add("sample", std::int64_t{1});
  line.add_text("prompt", "Once \xff").add_text("text", "two\nlines");

  TensorboardSink(setup()).write(line);
  JsonlSink(setup(2, 0)).write(line);

  const std::string record = tf_records(files("tensorboard")[0]).back();
  EXPECT_TRUE(contains(record, "samples/1"));
  EXPECT_TRUE(contains(record, "    two\n    lines")) << record;
  EXPECT_FALSE(std::filesystem::exists(setup().folder.metrics()));
  const Json json = parse_json(read_file(setup().folder.samples()), "samples.jsonl");
  EXPECT_EQ(json.at("text"), "two\nlines");
  EXPECT_EQ(json.at("prompt"), "Once \uFFFD");
  EXPECT_EQ(json.at("sample_step"), 20);
  EXPECT_EQ(json.at("attempt"), 2);
}

TEST_F(FormatSinks, TheTextfileIsRemovedAtTheEnd) {
  SinkSetup one = setup();
  one.keys = own_keys<PrometheusFileSink::Config>();
  one.keys.at(0).value = at("").string();
  {
    PrometheusFileSink sink(one);
    EXPECT_TRUE(contains(read_file(at("trireme-42.prom")), "trireme_steps{"));
  }
  EXPECT_FALSE(std::filesystem::exists(at("trireme-42.prom")));
  one.keys.at(0).value = at("absent").string();
  EXPECT_TRUE(contains(error_of([&] { PrometheusFileSink sink(one); }).what(), "absent"));
}

TEST(PrometheusKeys, AnInvalidAddressIsAnError) {
  for (const char* bad : {"host", "host:", "host:70000", "host:-1", "a:b:c"}) {
    Problems problems;
    check(PrometheusSink::Config{bad}, problems);
    ASSERT_EQ(problems.lines().size(), 1U) << bad;
    EXPECT_TRUE(contains(problems.lines()[0], "HOST:PORT")) << problems.lines()[0];
  }
  Problems problems;
  for (const char* good : {"", "9100", ":0", "node7:9100", "[::1]:9100", "0.0.0.0:1"})
    check(PrometheusSink::Config{good}, problems);
  EXPECT_TRUE(problems.empty());
}

SlowStep slow_step(std::int64_t step, std::int64_t rank, double excess_s,
                   const std::string& phase = "compute") {
  return {step, 1, rank, "n" + std::to_string(rank), phase, excess_s, 1.0};
}

TEST(SlowRank, IsNamedWithinTwentyStepsAndThenNotAgain) {
  SlowRankWatch watch;
  std::optional<std::string> found;
  std::int64_t step = 1;
  for (; step <= 20 && !found; ++step) found = watch.add(slow_step(step, 3, 0.25));
  ASSERT_TRUE(found);
  EXPECT_TRUE(contains(*found, "rank 3 on host n3 is slow")) << *found;
  EXPECT_TRUE(contains(*found, "0.25 s a step")) << *found;
  EXPECT_TRUE(contains(*found, "25 %")) << *found;
  EXPECT_TRUE(contains(*found, "compute")) << *found;
  for (; step <= 900; ++step) EXPECT_FALSE(watch.add(slow_step(step, 3, 0.25)));
  for (std::int64_t more = 0; more < 20 && found; ++more, ++step)
    if (auto other = watch.add(slow_step(step, 3, 0.25, "data"))) found = other;
  EXPECT_TRUE(contains(*found, "data")) << "a new phase is named";
}

TEST(SlowRank, IsNotNamedIfTheDelayMovesOrIsShort) {
  SlowRankWatch watch;
  for (std::int64_t step = 1; step <= 200; ++step) {
    EXPECT_FALSE(watch.add(slow_step(step, step % 4, 0.4))) << "another rank in each step";
  }
  for (std::int64_t step = 201; step <= 400; ++step)
    EXPECT_FALSE(watch.add(slow_step(step, 1, 0.05)));
}

}  // namespace
}  // namespace trireme::train
