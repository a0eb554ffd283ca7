#include "job/doctor/findings.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "job/doctor/node_speeds.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::job {
namespace {

/// Returns two nodes with two ranks each and without problems.
std::vector<RankFacts> healthy() {
  std::vector<RankFacts> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    RankFacts one;
    one.node = rank / 2;
    one.device = {rank < 2 ? "n1" : "n2", rank % 2 == 0 ? "a" : "b", 2, false, true};
    one.gpu_free_bytes = 79;
    one.gpu_total_bytes = 80;
    one.cuda_driver = 13000;
    one.cuda_runtime = 13000;
    one.cpus = rank % 2 == 0 ? std::vector<std::int64_t>{0, 1} : std::vector<std::int64_t>{2, 3};
    one.node_cpus = 8;
    one.threads = 2;
    one.max_files = 4096;
    one.max_locked_bytes = -1;
    one.has_infiniband = true;
    one.shm_free_bytes = std::int64_t{1} << 30;
    one.interfaces = {"ib0", "eth0"};
    one.variables = {{"OMP_NUM_THREADS", "2"}, {"NCCL_SOCKET_IFNAME", "ib"}};
    one.binary = "ab";
    one.clock_s = 1000;
    ranks.push_back(one);
  }
  return ranks;
}

/// Returns the only finding with this id, which names `where`.
void expect(const std::vector<RankFacts>& ranks, const std::string& id, const char* severity,
            const std::string& where) {
  const auto findings = findings_of(ranks);
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& one) { return one.id == id; });
  ASSERT_NE(found, findings.end()) << id;
  EXPECT_STREQ(severity_name(found->severity), severity) << id;
  EXPECT_TRUE(contains(found->line(), where)) << found->line();
  EXPECT_EQ(findings.size(), 1U) << id << " brings others along";
}

TEST(Findings, NothingIsWrongWithWhatIsHealthy) {
  for (const Finding& one : findings_of(healthy())) ADD_FAILURE() << one.id << ": " << one.line();
  EXPECT_TRUE(findings_of({}).empty());
}

TEST(Findings, EachIsReportedWithItsPlace) {
  using Break = std::function<void(std::vector<RankFacts>&)>;

  struct Case {
    const char* id;
    const char* severity;
    const char* where;
    Break breaks;
  };

  const std::vector<Case> cases{
      {"gpu-ranks", "error", "rank 3 (host n2)",
       [](auto& ranks) {
         ranks[3].device.gpu.clear();
         for (RankFacts& one : ranks) one.device.num_gpus = 1;
       }},
      {"gpu-in-use", "warning", "rank 1 (host n1)",
       [](auto& ranks) { ranks[1].gpu_free_bytes = 8; }},
      {"gpu-idle", "warning", "n2", [](auto& ranks) { ranks[2].device.num_gpus = 8; }},
      {"cuda-driver-old", "error", "CUDA 12.2, the program was built for 13.0",
       [](auto& ranks) { ranks[2].cuda_driver = 12020; }},
      {"cpus-shared", "warning", "n1: 2 ranks are bound to the same 2 CPUs",
       [](auto& ranks) {
         ranks[1].cpus = {0, 1};
       }},
      {"threads-many", "warning", "n2: 10 threads", [](auto& ranks) { ranks[3].threads = 8; }},
      {"files-few", "error", "may open 27", [](auto& ranks) { ranks[0].max_files = 27; }},
      {"memory-locked-little", "warning", "ranks 2, 3 (host n2)",
       [](auto& ranks) { ranks[2].max_locked_bytes = ranks[3].max_locked_bytes = 65536; }},
      {"shm-absent", "error", "n2", [](auto& ranks) { ranks[2].shm_free_bytes = -1; }},
      {"shm-small", "warning", "n1", [](auto& ranks) { ranks[0].shm_free_bytes = 1000; }},
      {"environment-differs", "warning", "rank 2 (host n2): OMP_NUM_THREADS is not set",
       [](auto& ranks) { ranks[2].variables.erase("OMP_NUM_THREADS"); }},
      {"interface-absent", "error", "NCCL_SOCKET_IFNAME=ib names",
       [](auto& ranks) { ranks[2].interfaces = {"eth0"}; }},
      {"binary-differs", "error", "rank 1 (host n1)", [](auto& ranks) { ranks[1].binary = "cd"; }},
      {"clock-skew", "warning", "n2: its clock is",
       [](auto& ranks) { ranks[2].clock_s = ranks[3].clock_s = 1060; }},
  };
  for (const Case& one : cases) {
    std::vector<RankFacts> ranks = healthy();
    one.breaks(ranks);
    SCOPED_TRACE(one.id);
    expect(ranks, one.id, one.severity, one.where);
  }
  std::vector<RankFacts> lonely = healthy();
  for (RankFacts& one : lonely) one.variables.clear();
  lonely[2].interfaces.clear();
  expect(lonely, "network-none", "error", "rank 2 (host n2)");
}

TEST(Findings, HostsOfErrorsAreLeftOutWhereOthersAreWell) {
  std::vector<RankFacts> ranks = healthy();
  ranks[2].shm_free_bytes = -1;
  EXPECT_EQ(hosts_to_exclude(findings_of(ranks), {"n1", "n2"}), (std::vector<std::string>{"n2"}));
  ranks[0].shm_free_bytes = -1;
  for (RankFacts& one : ranks) one.cuda_driver = 12020;
  const auto all = findings_of(ranks);
  EXPECT_EQ(hosts_to_exclude({all.back()}, {"n1"}), (std::vector<std::string>{}));
  EXPECT_TRUE(hosts_to_exclude({{"x", Finding::Severity::error, "", "", "", {"n1"}},
                                {"x", Finding::Severity::error, "", "", "", {"n2"}}},
                               {"n1", "n2"})
                  .empty())
      << "no node would be left";
  ranks = healthy();
  ranks[2].clock_s = 2000;
  EXPECT_TRUE(hosts_to_exclude(findings_of(ranks), {"n1", "n2"}).empty()) << "a warning";
}

TEST(Findings, ADriverOfTheSameMajorVersionWillDo) {
  std::vector<RankFacts> ranks = healthy();
  for (RankFacts& one : ranks) {
    one.cuda_driver = 12020;
    one.cuda_runtime = 12080;
  }
  EXPECT_TRUE(findings_of(ranks).empty());
}

TEST(Findings, EachSaysWhatToDo) {
  std::vector<RankFacts> ranks = healthy();
  for (RankFacts& one : ranks) one.device.gpu.clear();
  ranks[2].interfaces = {"eth0"};
  ranks[2].variables["OMPI_MCA_btl_tcp_if_include"] = "ib0";
  ranks[2].clock_s -= 86'400;
  const auto findings = findings_of(ranks);
  for (const Finding& one : findings) EXPECT_FALSE(one.advice.empty()) << one.id;
  const auto line_of = [&](const std::string& id) {
    const auto found = std::find_if(findings.begin(), findings.end(),
                                    [&](const Finding& one) { return one.id == id; });
    return found == findings.end() ? "" : found->line();
  };
  EXPECT_TRUE(contains(line_of("interface-absent"), "name one that all hosts have: eth0"))
      << line_of("interface-absent");
  EXPECT_TRUE(contains(line_of("clock-skew"), "its clock is 24h00m behind rank 0's"))
      << line_of("clock-skew");
}

TEST(Findings, FactsGoBetweenRanksAsText) {
  const RankFacts one = healthy()[1];
  EXPECT_EQ(to_text(rank_facts_from(to_text(one))), to_text(one));
  EXPECT_EQ(error_of([] { rank_facts_from("{}"); }).kind(), ErrorKind::internal);
  comm::LaunchInfo launch;
  launch.hostname = "here";
  const RankFacts own = own_facts(launch, 3);
  EXPECT_FALSE(own.cpus.empty());
  EXPECT_EQ(own.binary.size(), 32U);
  EXPECT_EQ(to_text(rank_facts_from(to_text(own))), to_text(own));
}

TEST(Findings, ForWrongSumsNameTheNodeWithoutARightSum) {
  const auto hosts = [](const std::vector<NodeSpeed>& nodes) {
    std::string all;
    for (const Finding& one : wrong_nodes(nodes)) all += one.where;
    return all;
  };
  EXPECT_EQ(hosts({{"n1", 1, 1, 1}, {"n2", 1, 2, 0}, {"n3", 1, 1, 1}, {"n4", 1, 0, 2}}), "n2");
  EXPECT_EQ(hosts({{"n1", 1, 1, 1}, {"n2", 1, 1, 1}, {"n3", 1, 0, 2}}), "n1n2") << "now and then";
  EXPECT_EQ(hosts({{"n1", 1, 1, 0}, {"n2", 1, 1, 0}}), "n1n2")
      << "with two nodes, the wrong one is unknown";
  EXPECT_EQ(hosts({{"n1", 1, 0, 2}, {"n2", 1, 0, 0}}), "");
}

TEST(Findings, OneNodeFarBelowTheOthersIsSlow) {
  const auto slow = slow_nodes({{"n1", 10}, {"n2", 4}, {"n3", 11}, {"n4", 9}});
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_TRUE(contains(slow[0].line(), "--exclude=n2")) << slow[0].line();
  EXPECT_TRUE(slow_nodes({{"n1", 10}, {"n2", 1}}).empty())
      << "with two nodes, the slow one is unknown";
  EXPECT_TRUE(slow_nodes({{"n1", 10}, {"n2", 6}, {"n3", 10}}).empty());
}

}  // namespace
}  // namespace trireme::job
