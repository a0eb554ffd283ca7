/// Tests the texts that validations generate (metrics.samples): they do not depend on the layout,
/// training does not depend on them, and `trireme report` shows them.

#include <fstream>
#include <sstream>

#include "core/files/file.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;

class Samples : public testing::RunProgram {
 protected:
  static Arguments with(const Arguments& more) {
    Arguments all{"--train.steps",       "4",
                  "--train.eval_every",  "2",
                  "--data.valid_path",   set().string(),
                  "--data.valid_tokens", "640",
                  "--train.precision",   "fp64",
                  "--optim.lr",          "0.0001"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  static std::string prompts() {
    std::ofstream(path("prompts.txt")) << "first one\n\nsecond prompt\nthird word\n";
    return path("prompts.txt").string();
  }

  /// Returns the texts that `generate` continues the prompts with, from the newest checkpoint.
  static std::vector<std::string> generated(const std::string& run) {
    std::ofstream(path("prompts.jsonl")) << R"({"prompt": "first one"})"
                                            "\n"
                                         << R"({"prompt": "second prompt"})"
                                            "\n"
                                         << R"({"prompt": "third word"})"
                                            "\n";
    const Exit exit = trireme({"generate", "--checkpoint", path(run).string(), "--prompts",
                               path("prompts.jsonl").string(), "--max-tokens", "12",
                               "--temperature", "0", "--precision", "fp64", "--json"});
    EXPECT_EQ(exit.code, 0) << exit.err;
    std::vector<std::string> texts;
    std::istringstream lines(exit.out);
    for (std::string line; std::getline(lines, line);)
      texts.push_back(parse_json(line, "generate").at("text"));
    return texts;
  }

  /// Returns [sample_step, sample, prompt, text] of each line of samples.jsonl.
  static std::vector<Json> samples(const std::string& run) {
    std::vector<Json> lines;
    std::ifstream in(path(run) / "samples.jsonl");
    for (std::string line; std::getline(in, line);) {
      const Json one = parse_json(line, "samples.jsonl");
      lines.push_back({one.at("sample_step"), one.at("sample"), one.at("prompt"), one.at("text")});
    }
    return lines;
  }
};

TEST_F(Samples, AreEqualOnOneRankAndWithADividedModelAndDoNotChangeTheTraining) {
  ASSERT_EQ(pretrain("without", with({})).code, 0);
  const Arguments more = with({"--metrics.samples", prompts(), "--metrics.sample_tokens", "12"});

  const Exit one = pretrain("one", more);
  ASSERT_EQ(one.code, 0) << one.err;
  Arguments divided = more;
  divided.insert(divided.end(), {"--parallel.tp", "2"});
  const Exit two = pretrain("two", divided, {.ranks = 2});
  ASSERT_EQ(two.code, 0) << two.err;

  const std::vector<Json> texts = samples("one");
  ASSERT_EQ(texts.size(), 6U) << "three prompts, two validations";
  EXPECT_EQ(texts[4][0], 4);
  EXPECT_EQ(texts[4][1], 1);
  EXPECT_EQ(texts[4][2], "second prompt");
  const std::vector<std::string> expected = generated("one");
  ASSERT_EQ(expected.size(), 3U);
  EXPECT_NE(expected[0], expected[1]) << "the texts must show which prompt they continue";
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(texts[3 + i][3], expected[i]) << i;
  EXPECT_EQ(samples("two"), texts);
  EXPECT_EQ(read_file(path("one") / "chain.txt"), read_file(path("without") / "chain.txt"));

  const Exit json = trireme({"report", path("one").string(), "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  EXPECT_EQ(parse_json(json.out, "report")["runs"][0]["samples"].size(), 6U);
}

TEST_F(Samples, BadPromptsAreReportedBeforeTheFirstStep) {
  std::ofstream(path("bad.jsonl")) << R"({"prompt": "good"})"
                                   << "\n"
                                   << R"({"ids": [999999]})";
  expect_refused(pretrain("bad", with({"--metrics.samples", path("bad.jsonl").string()})), 3,
                 {"bad.jsonl:2", "999999"});
  expect_refused(pretrain("bad", with({"--metrics.samples", path("absent").string()})), 3,
                 {"absent"});
  expect_refused(pretrain("bad", {"--metrics.samples", prompts()}), 2,
                 {"metrics.samples", "train.eval_every"});
  EXPECT_FALSE(std::filesystem::exists(path("bad"))) << "nothing was changed";
}

}  // namespace
}  // namespace trireme
