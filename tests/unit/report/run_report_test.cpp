#include "report/run_report.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "report/run_json.hpp"
#include "report/summary.hpp"
#include "unit/report/run_files.hpp"

namespace trireme::report {
namespace {

class RunReportTest : public RunFiles {
 protected:
  [[nodiscard]] RunReport report(const std::string& name = "run") const {
    return read_run(run(name).root, 2000);
  }

  [[nodiscard]] Json json(const std::string& name = "run") const {
    return to_json({report(name)})["runs"][0];
  }

  /// A run of one step with this number of ranks and this throughput.
  void write_small_run(const std::string& name, int ranks, int tokens_per_s) const {
    write(run(name).status(), {R"({"state":"done","exit_code":0,"step":1,"committed":1})"});
    write_events(run(name),
                 {event(1, 10, "start") +
                  ",\"job\":\"\",\"restart\":0,\"attempt\":0,\"nodes\":[\"n1\"],\"hashes\":{},"
                  "\"resumed_from\":null,\"ranks\":" +
                  std::to_string(ranks)});
    write(run(name).metrics(),
          {"{\"step\":1,\"time\":12,\"step_time_s\":2,\"attempt\":0,\"tokens_per_s\":" +
           std::to_string(tokens_per_s) + "}"});
  }
};

TEST_F(RunReportTest, TheTimesOfARankAreMeansOverItsNewestAttempt) {
  write_known_run();
  EXPECT_TRUE(json()["rank_times"].empty());
  write(run().ranks(),
        {R"({"step":1,"rank":0,"host":"n1","compute_s":9,"mem_peak_bytes":50,"attempt":0})",
         R"({"step":2,"rank":0,"host":"n1","compute_s":1,"mem_peak_bytes":7,"attempt":1})",
         R"({"step":2,"rank":1,"host":"n2","compute_s":4,"data_wait_s":0.5,"attempt":1})",
         R"({"step":2,"ra)",
         R"({"step":3,"rank":0,"host":"n1","compute_s":2,"mem_peak_bytes":8,"attempt":1})"});

  const Json times = json()["rank_times"];

  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0]["lines"], 2);
  EXPECT_EQ(times[0]["compute_s"], 1.5);
  EXPECT_EQ(times[0]["mem_peak_bytes"], 8);
  EXPECT_EQ(times[1]["host"], "n2");
  EXPECT_EQ(times[1]["data_wait_s"], 0.5);
}

TEST_F(RunReportTest, SamplesAreSortedByPromptAndStepAndTheLastLineOfAStepCounts) {
  write_known_run();
  EXPECT_TRUE(json()["samples"].empty());
  write(run().samples(),
        {R"({"sample_step":2,"sample":0,"prompt":"A","text":"old","attempt":0})",
         R"({"sample_step":2,"sample":1,"prompt":"B","text":"b2","attempt":0})",
         R"({"sample_step":4,"sample":0,"prompt":"A","text":"a4","attempt":0})",
         R"({"sample_step":4,"sam)",
         R"({"sample_step":2,"sample":0,"prompt":"A","text":"a\n2","attempt":1})"});

  const Json samples = json()["samples"];

  ASSERT_EQ(samples.size(), 3U);
  EXPECT_EQ(samples[0], Json({{"step", 2}, {"sample", 0}, {"prompt", "A"}, {"text", "a\n2"}}));
  EXPECT_EQ(samples[1]["text"], "a4");
  EXPECT_EQ(samples[2]["prompt"], "B");
}

TEST_F(RunReportTest, TheReportCardHasTheNumbersAndTextsOfEachEvaluation) {
  write_known_run();
  EXPECT_TRUE(json()["evaluations"].empty());
  const std::filesystem::path evaluations = run().root / "evaluations";
  std::filesystem::create_directories(evaluations);
  write(evaluations / "core.json", {R"({"core": 0.25, "tasks": [{"accuracy": 0.5}]})"});
  write(evaluations / "chat.json",
        {R"({"text": "Blue.", "ids": [4, 5], "finish_reason": "stop"})"});
  write(evaluations / "valid.json", {R"({"loss": 2)"});
  write(evaluations / "notes.txt", {"{}"});

  const RunReport known = report();

  EXPECT_EQ(json()["evaluations"],
            Json::parse(R"({"chat": {"text": "Blue.", "finish_reason": "stop"},
                            "core": {"core": 0.25}})"));
  EXPECT_EQ(card_text(known.evaluations),
            "chat: text Blue., finish_reason stop\ncore: core 0.25\n");
  ASSERT_EQ(known.notes.size(), report("run").notes.size());
  EXPECT_NE(known.notes.front().find("valid.json"), std::string::npos) << known.notes.front();
}

TEST_F(RunReportTest, ThePredictedMfuComesFromTheLayoutFile) {
  write_known_run();
  const auto predicted_with = [&](const std::string& layout) {
    write(run().layout(), {layout});
    return json()["mfu_predicted"];
  };
  EXPECT_EQ(predicted_with("{\"mfu_predicted\": 0.4}"), 0.4);
  EXPECT_TRUE(predicted_with("{\"mfu_predicted\": null}").is_null());
  EXPECT_TRUE(predicted_with("{\"mfu_pre").is_null());
}

TEST_F(RunReportTest, TellsTheFactsOfAKnownRun) {
  write_known_run();

  const Json known = json();

  EXPECT_EQ(known["state"], "done");
  EXPECT_EQ(known["ranks"], 2);
  EXPECT_EQ(known["steps"], 5);
  EXPECT_EQ(known["tokens"], 500);
  EXPECT_EQ(known["loss_first"], 6);
  EXPECT_EQ(known["loss_last"], 2);
  EXPECT_EQ(known["valid_loss"], 2.5);
  EXPECT_NEAR(known["tokens_per_s"].get<double>(), 500.0 / 30, 1e-9) << "kept steps only";
  EXPECT_EQ(known["mfu"], 0.5);
  EXPECT_NEAR(known["device_hours"].get<double>(), 136.0 / 3600, 1e-12);
  EXPECT_NEAR(known["goodput"].get<double>(), 24.0 / 231, 1e-9);
  EXPECT_EQ(known["redone_steps"], 2);
  EXPECT_EQ(known["committed_lost"], 0);
  EXPECT_EQ(known["wall_s"]["total"], 231);
  for (const char* unknown : {"params", "energy_j", "mfu_predicted", "speedup"})
    EXPECT_TRUE(known[unknown].is_null()) << unknown;
  const Json& failed = known["attempts"][0];
  EXPECT_EQ(failed["job"], "17");
  EXPECT_EQ(failed["start"], 1110);
  EXPECT_EQ(failed["end"], 1152);
  EXPECT_EQ(failed["to_step"], 4);
  EXPECT_EQ(failed["reason"], "failed");
  EXPECT_EQ(failed["exit_code"], 4);
  EXPECT_EQ(failed["root_cause"]["host"], "n2");
  EXPECT_EQ(failed["root_cause"]["message"], "disk full");
  EXPECT_EQ(known["attempts"][1]["reason"], "done");
  EXPECT_TRUE(known["attempts"][1]["root_cause"].is_null());
}

TEST_F(RunReportTest, SummarizesTheRunInPlainWords) {
  write_known_run();

  const std::string text = summary_of(report());

  for (const char* part :
       {"is done: 5 of 5 steps with 500 tokens on 2 ranks of 2 nodes.",
        "The loss went from 6.0000 to 2.0000, and the newest validation loss is 2.5000.",
        "The run took 3m51s, of which 10 % was training (goodput); the largest other parts are "
        "waiting in the queue (61 %) and startup (13 %).",
        "The run had 2 attempts, and 1 failed. 2 steps were repeated after a failure."})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(RunReportTest, RefusesADirectoryThatIsNotARun) {
  std::filesystem::create_directories(at("other"));
  for (const char* name : {"other", "absent"}) {
    try {
      static_cast<void>(report(name));
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
      EXPECT_NE(std::string(error.what()).find("is not a run directory"), std::string::npos);
    }
  }
}

TEST_F(RunReportTest, LeavesTheValuesOfAnEmptyRunUnknown) {
  write(run().status(), {R"({"state":"running","exit_code":0,"step":0,"committed":-1})"});

  const Json empty = json();

  for (const char* unknown : {"ranks", "steps", "tokens", "loss_first", "tokens_per_s", "goodput",
                              "device_hours", "wall_s"})
    EXPECT_TRUE(empty[unknown].is_null()) << unknown;
  EXPECT_EQ(empty["attempts"].size(), 0U);
  EXPECT_EQ(empty["notes"][0], "No attempt of this run has begun yet.");
}

TEST_F(RunReportTest, SaysThatCheckpointsHaveNoEventLog) {
  std::filesystem::create_directories(run().checkpoints() / "step-000000000");

  const Json imported = json();

  EXPECT_EQ(imported["state"], "no events");
  EXPECT_TRUE(imported["notes"][0].get<std::string>().starts_with("There is no journal.jsonl"));
}

TEST_F(RunReportTest, HasTheEnergyAndTheNewestNormsOfLayers) {
  write_known_run();
  write(
      run().metrics(),
      {R"({"step":1,"step_time_s":2,"tokens_per_s":50,"tokens":100,"energy_j":20,"attempt":1})",
       R"({"step":2,"step_time_s":2,"tokens_per_s":50,"tokens":200,"energy_j":30,"attempt":1,"grad_norm/layer_00":0.5})",
       R"({"step":3,"step_time_s":2,"tokens_per_s":50,"tokens":300,"attempt":1,"grad_norm/layer_00":0.25})"});

  const Json known = json();

  EXPECT_EQ(known["energy_j"], 50);
  EXPECT_EQ(known["tokens_per_j"], 4) << "200 tokens of the steps with a known energy";
  EXPECT_EQ(known["layer_norms"]["layer_00"]["grad_norm"], 0.25);

  write(run().metrics(),
        {R"({"step":3,"step_time_s":2,"tokens_per_s":50,"tokens":300,"energy_j":10,"attempt":0})"});
  EXPECT_EQ(json()["energy_j"], 30) << "the first line is the mean of steps 1 to 3";
}

TEST_F(RunReportTest, AnRlRunTellsItsRewardsOfTheStepsThatCount) {
  write_known_run();
  EXPECT_TRUE(json()["task_metrics"].empty());
  EXPECT_TRUE(json()["valid_reward"].is_null());
  write(
      run().metrics(),
      {R"({"step":1,"loss":1,"reward":-0.5,"kl_ref":null,"completion_tokens_mean":20,"attempt":0})",
       R"({"step":2,"loss":1,"reward":0.125,"kl_ref":0.25,"completion_tokens_mean":30,"attempt":0})",
       R"({"step":3,"loss":1,"reward":9,"kl_ref":9,"completion_tokens_mean":90,"attempt":0})",
       R"({"resumed_from":2,"attempt":1})",
       R"({"step":3,"loss":1,"reward":0.5,"kl_ref":0.75,"completion_tokens_mean":40,"attempt":1})",
       R"({"eval_step":3,"valid_loss":-0.625,"valid_reward":0.625,"attempt":1})"});

  const Json known = json();
  const std::string text = summary_of(report());

  EXPECT_EQ(known["task_metrics"], Json::parse(R"({
      "reward": {"title": "Mean reward", "first": -0.5, "last": 0.5},
      "kl_ref": {"title": "KL divergence from the reference", "first": 0.25, "last": 0.75},
      "completion_tokens_mean":
          {"title": "Mean tokens of an answer", "first": 20.0, "last": 40.0}})"));
  EXPECT_EQ(known["valid_reward"], 0.625);
  for (const char* part :
       {"The loss went from 1.0000 to 1.0000. The mean reward went from -0.5 to 0.5.",
        "The KL divergence from the reference went from 0.25 to 0.75.",
        "The mean number of tokens of an answer went from 20 to 40.",
        "The newest validation reward is 0.625."})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(text.find("validation loss"), std::string::npos) << text;
}

TEST_F(RunReportTest, NotesDamagedLines) {
  write_known_run();
  std::ofstream(run().metrics(), std::ios::app) << "{\"step\":6,\n";

  EXPECT_EQ(json()["notes"][0],
            "Damaged lines of metrics.jsonl were skipped: 1. The first is line 11.");
}

TEST_F(RunReportTest, NamesARankThatOthersWaitFor) {
  write_known_run();
  // Rank 1 needs 3 s and rank 0 needs 2 s: the mean wait of both is 0.5 s.
  std::vector<std::string> lines;
  for (int step = 1; step <= 20; ++step)
    lines.push_back("{\"step\":" + std::to_string(step) +
                    R"(,"step_time_s":3,"peer_wait_s":0.5,"slowest_rank":1,"slowest_host":"n2",)"
                    R"("slowest_phase":"data","attempt":0})");
  write(run().metrics(), lines);

  const Json slow = json()["slow_ranks"];

  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0]["rank"], 1);
  EXPECT_EQ(slow[0]["host"], "n2");
  EXPECT_EQ(slow[0]["phase"], "data");
  EXPECT_NEAR(slow[0]["excess"].get<double>(), 0.5, 1e-9);
}

TEST_F(RunReportTest, RanksThatAreTheSlowestInTurnAreNotSlow) {
  write_known_run();
  std::vector<std::string> lines;
  for (int step = 1; step <= 100; ++step)
    lines.push_back("{\"step\":" + std::to_string(step) +
                    R"(,"step_time_s":3,"peer_wait_s":0.5,"slowest_rank":)" +
                    std::to_string(step % 2) + "}");
  write(run().metrics(), lines);

  EXPECT_EQ(json()["slow_ranks"].size(), 0U);
}

TEST_F(RunReportTest, ComparesWithARunOnOneRank) {
  write_small_run("one", 1, 100);
  write_small_run("four", 4, 320);
  RunReport four = report("four");

  compare(four, report("one"));

  EXPECT_NEAR(*four.speedup, 3.2, 1e-9);
  EXPECT_NEAR(*four.efficiency, 0.8, 1e-9);
  write(run("one").metrics(), {});
  EXPECT_THROW(compare(four, report("one")), Error);
}

TEST_F(RunReportTest, ReadsTheNumberOfParametersFromTheConfiguration) {
  write_known_run();
  write(run().config(), {"[model]", "hidden_size = 128", "num_layers = 4", "num_heads = 4",
                         "num_kv_heads = 2", "head_dim = 32", "intermediate_size = 448",
                         "vocab_size = 500", "tie_embeddings = true", "qk_norm = true"});

  EXPECT_EQ(json()["params"], 950144) << "500 * 128 + 4 * 221504 + 128";
}

}  // namespace
}  // namespace trireme::report
