/// Benchmarks of collectives and of strong and weak scaling, under a real mpirun.

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;

class BenchScaling : public testing::RunProgram {
 protected:
  static Exit bench(int ranks, Arguments arguments) {
    arguments.insert(arguments.begin(), {TRIREME_PROGRAM, "bench"});
    return mpirun(ranks, arguments);
  }

  static Arguments small(Arguments arguments) {
    arguments.insert(arguments.end(),
                     {"--model.preset", "tiny", "--model.hidden_size", "32", "--train.seq_len",
                      "32", "--train.device", "cpu", "--steps", "2"});
    return arguments;
  }
};

TEST_F(BenchScaling, CollectivesHaveTheBandwidthsOfTheirTimes) {
  const Exit exit = bench(2, {"collectives", "--json", "--min-bytes", "4096", "--max-bytes",
                              "16384", "--seconds", "0.002", "--device", "cpu"});
  ASSERT_EQ(exit.code, 0) << exit.err;

  std::map<std::string, std::multiset<std::string>> ops;  // operations by backend
  for_each_json_line(exit.out, "collectives", [&](const Json& line, const std::string&) {
    const auto backend = line.at("backend").get<std::string>();
    ops[backend].insert(line.at("op").get<std::string>());
    EXPECT_EQ(line.contains("mpi_ratio"), backend == "shared") << line;
    const double time_us = line.at("time_us").get<double>();
    const double algbw = line.at("algbw").get<double>();
    EXPECT_GT(time_us, 0);
    EXPECT_NEAR(algbw, line.at("bytes").get<double>() / time_us / 1e3, 1e-9 + 1e-6 * algbw);
    const bool halves = line.at("op") == "reduce_scatter" || line.at("op") == "all_gather" ||
                        line.at("op") == "all_to_all";
    EXPECT_NEAR(line.at("busbw").get<double>(), algbw * (halves ? 0.5 : 1), 1e-9) << line;
  });
  const std::map<std::string, std::vector<std::string>> known{
      {"shared", {"all_gather", "all_reduce", "broadcast", "reduce_scatter"}},
      {"mpi",
       {"all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter", "send_recv"}},
      {"library", {"all_reduce", "reduce_scatter"}}};
  EXPECT_EQ(ops.size(), known.size());
  for (const auto& [backend, names] : known) {
    std::multiset<std::string> of_three_sizes;
    for (const std::string& name : names) of_three_sizes.insert({name, name, name});
    EXPECT_EQ(ops[backend], of_three_sizes) << backend;
  }
  expect_refused(bench(2, {"collectives", "--op", "all_reduc"}), 2,
                 {"--op", "all_reduc", "did you mean 'all_reduce'"});
}

TEST_F(BenchScaling, MeasuresSomeRanksAndPredictsOthers) {
  const Exit exit = bench(2, small({"scaling", "--strong", "--ranks", "1,2", "--predict", "8,64",
                                    "--json", "--figure", path("figure.svg").string()}));
  ASSERT_EQ(exit.code, 0) << exit.err;
  const Json study = parse_json(exit.out, "scaling");

  ASSERT_EQ(study["points"].size(), 4U);
  const std::vector<std::pair<int, std::string>> expected{
      {1, "measured"}, {2, "measured"}, {8, "predicted"}, {64, "predicted"}};
  const std::int64_t batch = study["global_batch"].get<std::int64_t>();
  EXPECT_EQ(batch % 64, 0);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Json& point = study["points"][i];
    EXPECT_EQ(point["ranks"], expected[i].first);
    EXPECT_EQ(point["kind"], expected[i].second);
    const double tokens_per_s = point["tokens_per_s"].get<double>();
    EXPECT_NEAR(tokens_per_s * point["step_s"].get<double>(), static_cast<double>(batch * 32), 1);
    EXPECT_NEAR(point["efficiency"].get<double>(),
                tokens_per_s / point["ranks"].get<double>() /
                    study["points"][0]["tokens_per_s"].get<double>(),
                1e-9);
    EXPECT_GE(point["comm_compute_ratio"].get<double>(), 0);
  }
  EXPECT_GT(study["fit"]["beta_s_per_byte"].get<double>(), 0);
  EXPECT_GE(study["fit"]["alpha_s"].get<double>(), 0);
  EXPECT_GT(study["fit"]["heldout_error"].get<double>(), 0);
  const std::string figure = read_file(path("figure.svg"));
  EXPECT_EQ(count(figure, "class=\"measured\""), 4U);
  EXPECT_EQ(count(figure, "class=\"predicted\""), 4U);
}

TEST_F(BenchScaling, WrongRequestsAreRefused) {
  expect_refused(bench(2, small({"scaling", "--weak", "--ranks", "1,4"})), 2,
                 {"--ranks 1,4", "mpirun -n 4"});
  expect_refused(bench(1, small({"scaling", "--ranks", "1"})), 2, {"--strong", "--weak"});
  expect_refused(bench(1, small({"scaling", "--weak", "--ranks", "1", "--predict", "a"})), 2,
                 {"--predict", "separated by commas"});
  expect_refused(bench(1, small({"scaling", "--strong", "--ranks", "1", "--predict", "64",
                                 "--train.global_batch", "32"})),
                 2, {"train.global_batch = 32", "64 data ranks"});
}

}  // namespace
}  // namespace trireme
