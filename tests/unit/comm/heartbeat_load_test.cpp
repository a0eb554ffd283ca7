/// Measures rank 0 of a heartbeat with thousands of ranks. Rank 0 is real. Another process plays
/// all other ranks: it has their connections and sends their messages.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <thread>

#include "comm/base_communicator.hpp"
#include "comm/descriptors.hpp"
#include "comm/liveness/heartbeat.hpp"
#include "comm/liveness/heartbeat_wire.hpp"
#include "core/error.hpp"
#include "core/timer.hpp"
#include "support/child.hpp"

namespace trireme::testing {
namespace {

using namespace comm::heartbeat;

constexpr double kInterval_s = 0.5;

struct Job {
  int ranks = 4096;
  int ranks_per_node = 8;

  [[nodiscard]] int nodes() const { return ranks / ranks_per_node; }

  /// Returns the ranks that connect to rank 0.
  [[nodiscard]] std::vector<int> clients() const {
    std::vector<int> all;
    for (int rank = 1; rank < ranks; ++rank)
      if (rank < ranks_per_node || rank % ranks_per_node == 0) all.push_back(rank);
    return all;
  }
};

/// The world of rank 0 while the heartbeat connects. The other ranks contribute nothing to a
/// reduction, and a broadcast writes its text to the process that plays them.
class WorldOfRankZero final : public comm::BaseCommunicator {
 public:
  WorldOfRankZero(const Job& job, int pipe, const std::string& name, std::vector<int> ranks)
      : BaseCommunicator(name, 0, static_cast<int>(ranks.size()), {}),
        job_(job),
        pipe_(pipe),
        ranks_(std::move(ranks)) {}

  [[nodiscard]] const char* backend() const override { return "test"; }

  std::unique_ptr<Communicator> split(int, int, const std::string& name) override {
    std::vector<int> ranks;
    const int distance = name == "heartbeat node" ? 1 : job_.ranks_per_node;
    const int end = name == "heartbeat node" ? job_.ranks_per_node : job_.ranks;
    for (int rank = 0; rank < end; rank += distance) ranks.push_back(rank);
    return std::make_unique<WorldOfRankZero>(job_, pipe_, name, std::move(ranks));
  }

 protected:
  [[nodiscard]] bool counts_sends(std::string_view) const override { return true; }

  comm::WorkPtr start_all_reduce(comm::Call call, const comm::Reduction& request) override {
    if (request.input != request.output)
      std::memcpy(request.output, request.input, request.bytes());
    return done(call);
  }

  comm::WorkPtr start_reduce_scatter(comm::Call call, const comm::Reduction&) override {
    return done(call);
  }

  comm::WorkPtr start_all_gather(comm::Call call, const comm::AllGather& request) override {
    std::copy(ranks_.begin(), ranks_.end(), static_cast<std::int32_t*>(request.output));
    return done(call);
  }

  comm::WorkPtr start_broadcast(comm::Call call, const comm::Broadcast& request) override {
    const auto sent = ::write(pipe_, request.data, request.bytes());
    EXPECT_EQ(sent, static_cast<ssize_t>(request.bytes()));
    return done(call);
  }

  comm::WorkPtr start_exchange(comm::Call call, const comm::Exchange&) override {
    return done(call);
  }

  comm::WorkPtr start_barrier(comm::Call call) override { return done(call); }

 private:
  static comm::WorkPtr done(const comm::Call& call) {
    call.complete();
    return std::make_unique<comm::DoneWork>();
  }

  Job job_;
  int pipe_;
  std::vector<int> ranks_;
};

comm::ActivitySnapshot activity_at(std::int64_t report) {
  return {.step = report,
          .operations = static_cast<std::uint64_t>(report) * 100,
          .group = "dp",
          .operation = "all_reduce",
          .tag = "grads bucket 3",
          .sequence = static_cast<std::uint64_t>(report) * 40,
          .phase = "step"};
}

/// Plays all ranks but rank 0. Rank `victim` disappears after `reports` reports. Throws Error(comm)
/// if a rank has no report of the loss after 5 s.
void play_ranks(const Job& job, int pipe, std::int64_t reports, int victim) {
  const std::vector<int> ranks = job.clients();
  comm::raise_descriptor_limit(ranks.size() + 16, 0, "simulated ranks");
  std::vector<Connection> connections;
  std::string cookie;
  int port = 0;
  const auto read_invitation = [&] {
    std::string text(2048, '\0');
    for (std::size_t got = 0; got < text.size();) {
      const auto n = ::read(pipe, text.data() + got, text.size() - got);
      if (n <= 0) fail(ErrorKind::comm, "rank 0 has ended");
      got += static_cast<std::size_t>(n);
    }
    std::istringstream(text) >> cookie >> port;
  };
  const bool has_node_group = job.ranks_per_node > 1;
  read_invitation();
  for (const int rank : ranks) {
    if (has_node_group && rank == job.ranks_per_node) read_invitation();
    connections.push_back(connect_to("127.0.0.1", port, 5).value());
    connections.back().send(Hello{cookie, rank, "n" + std::to_string(rank), rank});
    connections.back().flush();
    if (rank < job.ranks_per_node) continue;
    for (int i = 1; i < job.ranks_per_node; ++i)
      connections.back().send(Member{rank + i, "n" + std::to_string(rank), rank + i});
  }
  const Timer timer;
  const auto each = static_cast<double>(connections.size());
  for (std::int64_t report = 1; report <= reports; ++report) {
    for (std::size_t i = 0; i < connections.size(); ++i) {  // spread over the interval
      Connection& one = connections[i];
      one.send(Status{activity_at(report)});
      for (int other = 1; ranks[i] >= job.ranks_per_node && other < job.ranks_per_node; ++other)
        one.send(Relayed{ranks[i] + other, activity_at(report)});
      if (!one.flush() || !one.fill()) fail(ErrorKind::comm, "rank 0 closed rank {}", ranks[i]);
      while (one.next()) {
      }
      const double due_s =
          kInterval_s * (static_cast<double>(report - 1) + static_cast<double>(i + 1) / each);
      if (due_s > timer.seconds())
        std::this_thread::sleep_for(std::chrono::duration<double>(due_s - timer.seconds()));
    }
  }
  const Timer since_loss;
  std::size_t informed = 0;
  for (std::size_t i = 0; i < connections.size(); ++i)
    if (ranks[i] == victim) connections[i] = Connection(Socket());
  for (std::size_t i = 0; i < connections.size() && since_loss.seconds() < 5; ++i) {
    if (ranks[i] == victim) continue;
    for (bool is_informed = false; !is_informed && since_loss.seconds() < 5;) {
      pollfd wait{connections[i].fd(), POLLIN, 0};
      ::poll(&wait, 1, 100);
      connections[i].fill();
      while (const auto message = connections[i].next()) {
        const auto* lost = std::get_if<Lost>(&*message);
        is_informed = is_informed || (lost != nullptr && lost->loss.rank == victim);
      }
      informed += is_informed ? 1 : 0;
    }
  }
  std::printf("all %zu connections had the report of the loss within %.3f s\n", informed,
              since_loss.seconds());
  std::fflush(stdout);
  if (informed + 1 != connections.size())
    fail(ErrorKind::comm, "only {} of {} ranks were informed", informed, connections.size() - 1);
}

double cpu_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::size_t num_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

double resident_mib() {
  std::ifstream in("/proc/self/statm");
  double pages = 0;
  in >> pages >> pages;
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

/// Runs rank 0 and prints its CPU time, open files and memory. Fails if rank 0 uses more than
/// `cpu_limit` of a core.
void measure(const Job& job, double cpu_limit) {
  constexpr double kMeasured_s = 10;
  constexpr std::int64_t kReports = 30;
  const int victim = job.clients().back();
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t others = test::start_child([&] { play_ranks(job, pipe[0], kReports, victim); });
  std::vector<int> all(static_cast<std::size_t>(job.ranks));
  std::iota(all.begin(), all.end(), 0);
  WorldOfRankZero world(job, pipe[1], "world", std::move(all));
  comm::LaunchInfo launch;
  launch.size = job.ranks;
  launch.local_size = job.ranks_per_node;
  launch.num_nodes = job.nodes();
  launch.hostname = "n0";
  std::atomic<int> lost = -1;
  comm::HeartbeatOptions options;
  options.interval_s = kInterval_s;
  options.hang.most_s = 600;
  options.on_loss = [&](const comm::PeerLoss& loss) { lost = loss.rank; };
  const std::size_t files_before = num_descriptors();
  const double memory_before_mib = resident_mib();
  const Timer connecting;

  comm::Heartbeat heartbeat(world, launch, std::make_shared<comm::Activity>(), options);

  const double connected_s = connecting.seconds();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const double cpu_before_s = cpu_s();
  const Timer timer;
  std::this_thread::sleep_for(std::chrono::duration<double>(kMeasured_s));
  const double cpu_share = (cpu_s() - cpu_before_s) / timer.seconds();
  const std::size_t files = num_descriptors() - files_before;
  std::printf(
      "%d ranks, %d per node: %zu connections in %.2f s; rank 0 uses %.2f %% of a core, %zu open "
      "files and %.1f MiB for the heartbeat\n",
      job.ranks, job.ranks_per_node, job.clients().size(), connected_s, 100 * cpu_share, files,
      resident_mib() - memory_before_mib);
  EXPECT_LT(cpu_share, cpu_limit);
  EXPECT_LE(files, job.clients().size() + 8);
  EXPECT_EQ(test::shell_code(test::status_of(others)), kExitDone);
  EXPECT_EQ(lost, victim);
  for (const int end : pipe) ::close(end);
}

TEST(HeartbeatLoad, EightRanksPerNode) {
  measure({4096, 8}, 0.1);
}

TEST(HeartbeatLoad, OneRankPerNode) {
  measure({4096, 1}, 0.4);
}

}  // namespace
}  // namespace trireme::testing
