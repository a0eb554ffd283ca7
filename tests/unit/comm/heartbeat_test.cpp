#include "comm/liveness/heartbeat.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "comm/agree.hpp"
#include "comm/liveness/heartbeat_messages.hpp"
#include "comm/liveness/heartbeat_wire.hpp"
#include "comm/scalars.hpp"
#include "comm/self/self_communicator.hpp"
#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"
#include "support/child.hpp"

namespace trireme::testing {
namespace {

using namespace comm::heartbeat;

constexpr auto kInt = std::numeric_limits<int>::max();

const comm::ActivitySnapshot kActivity{
    .step = -1,
    .operations = std::numeric_limits<std::uint64_t>::max(),
    .group = "dp",
    .operation = "all_reduce",
    .tag = "grads\tbucket\n3",
    .sequence = 40,
    .phase = "",
    .complete = false,
    .waiting = true,
    .timed_out = true,
};

/// Every kind, in the order of HeartbeatMessage.
const std::vector<HeartbeatMessage> kMessages{
    Hello{"c00c1e", 3, "n2", kInt},
    Welcome{"c00c1e", "n1", 17},
    Member{5, "n3", 99},
    Status{kActivity},
    Relayed{6, kActivity},
    Alive{},
    Lost{{2, "n1", 4, 6, std::string(1, '\0') + "a reason", true}},
    Failure{-6, "loss is\nnot finite"},
    Goodbye{},
};

// A new member does not compile here until it is compared.
auto values(const Hello& m) {
  const auto& [cookie, rank, host, pid] = m;
  return std::tie(cookie, rank, host, pid);
}

auto values(const Welcome& m) {
  const auto& [cookie, host, pid] = m;
  return std::tie(cookie, host, pid);
}

auto values(const Member& m) {
  const auto& [rank, host, pid] = m;
  return std::tie(rank, host, pid);
}

auto values(const comm::ActivitySnapshot& now) {
  const auto& [step, operations, group, operation, tag, sequence, phase, complete, waiting,
               timed_out] = now;
  return std::tie(step, operations, group, operation, tag, sequence, phase, complete, waiting,
                  timed_out);
}

auto values(const Status& m) {
  return values(m.now);
}

auto values(const Relayed& m) {
  const auto& [rank, now] = m;
  return std::tuple_cat(std::tie(rank), values(now));
}

auto values(const Lost& m) {
  const auto& [rank, hostname, pid, code, reason, hung] = m.loss;
  return std::tie(rank, hostname, pid, code, reason, hung);
}

auto values(const Failure& m) {
  const auto& [code, reason] = m;
  return std::tie(code, reason);
}

auto values(const Alive&) {
  return std::tuple();
}

auto values(const Goodbye&) {
  return std::tuple();
}

TEST(HeartbeatMessages, ComeBackAsTheyWere) {
  ASSERT_EQ(kMessages.size(), std::variant_size_v<HeartbeatMessage>);
  for (std::size_t kind = 0; kind < kMessages.size(); ++kind) {
    const std::string bytes = encode(kMessages[kind]);
    const Decoded first = decode(bytes + "next");

    EXPECT_FALSE(first.garbage);
    EXPECT_EQ(first.used, bytes.size());
    ASSERT_TRUE(first.message) << kind;
    ASSERT_EQ(first.message->index(), kind);
    std::visit(
        [&](const auto& sent) {
          const auto& received = std::get<std::decay_t<decltype(sent)>>(*first.message);
          EXPECT_TRUE(values(received) == values(sent)) << kind;
        },
        kMessages[kind]);
  }
}

/// Returns the bytes of a message with this body.
std::string framed(const std::string& body) {
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(body.size() & 0xff);
  bytes[1] = static_cast<char>(body.size() >> 8);
  return bytes + body;
}

TEST(HeartbeatMessages, EveryTruncationIsRefused) {
  for (const HeartbeatMessage& message : kMessages) {
    const std::string bytes = encode(message);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const Decoded part = decode(bytes.substr(0, size));  // the rest has not arrived yet
      EXPECT_FALSE(part.message || part.garbage || part.used > 0) << size;
    }
    const std::string body = bytes.substr(8);
    ASSERT_EQ(framed(body), bytes);
    for (std::size_t size = 0; size < body.size(); ++size) {
      EXPECT_TRUE(decode(framed(body.substr(0, size))).garbage) << bytes[8] << " " << size;
    }
    EXPECT_TRUE(decode(framed(body + '\0')).garbage) << bytes[8];
  }
}

TEST(HeartbeatMessages, ValuesOutOfRangeAreRefused) {
  std::string failure = encode(Failure{1, ""});
  failure[8 + 1 + 4] = 1;  // 2^32 + 1
  EXPECT_TRUE(decode(failure).garbage);

  std::string lost = encode(Lost{});
  lost[lost.size() - 8] = 2;  // neither true nor false
  EXPECT_TRUE(decode(lost).garbage);

  EXPECT_TRUE(decode(framed("?")).garbage);
  EXPECT_TRUE(decode(std::string(8, '\xff')).garbage);
}

TEST(HeartbeatMessages, SendTheBeginningOfALongText) {
  const Decoded first = decode(encode(Failure{1, std::string(100000, 'x')}));

  ASSERT_TRUE(first.message);
  EXPECT_EQ(std::get<Failure>(*first.message).reason, std::string(kMaxText, 'x'));
}

comm::LaunchInfo here() {
  comm::LaunchInfo launch;
  launch.hostname = "here";
  return launch;
}

comm::HeartbeatOptions no_loss_expected() {
  comm::HeartbeatOptions options;
  options.interval_s = 0.02;
  options.on_loss = [](const comm::PeerLoss& loss) { ADD_FAILURE() << loss.reason; };
  return options;
}

/// Returns true if the other side closes within 5 s.
bool is_closed(const Connection& connection) {
  pollfd wait{connection.fd(), POLLIN, 0};
  if (::poll(&wait, 1, 5000) != 1) return false;
  char byte = 0;
  return ::recv(connection.fd(), &byte, 1, 0) <= 0;
}

/// Plays rank 1: strangers connect first, then it sends a valid hello.
void join_after_strangers(comm::Communicator& world) {
  comm::agree(world, std::nullopt);  // rank 0 has enough descriptors for the connections
  std::string text(2048, '\0');
  world.broadcast({.data = text.data(), .count = text.size(), .dtype = DType::u8, .root = 0})
      ->wait();
  std::istringstream in(text);
  std::string cookie;
  int port = 0;
  in >> cookie >> port;
  const auto connect = [&] { return connect_to("127.0.0.1", port, 5).value(); };
  const std::string hello = encode(Hello{cookie, 1, "here", 1});
  std::vector<std::string> all_garbage{
      "GET / HTTP/1.1\r\n\r\n",
      std::string(100000, 'x'),
      framed("H"),
      encode(Goodbye{}),
      encode(Hello{"another cookie", 1, "here", 1}),
      encode(Hello{cookie, 0, "here", 1}),
      encode(Hello{cookie, -1, "here", 1}),
      encode(Hello{cookie, 2, "here", 1}),
  };
  for (std::size_t size = 0; size < 16; ++size) {
    all_garbage.push_back(framed(hello.substr(8, hello.size() - 9 - size)));
  }
  for (const std::string& garbage : all_garbage) {
    const Connection stranger = connect();
    ::send(stranger.fd(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(is_closed(stranger)) << garbage.substr(0, 40);
  }
  Connection connection = connect();
  connection.send(Hello{cookie, 1, "here", 1});
  std::optional<HeartbeatMessage> answer;
  while (!answer && connection.flush() && connection.fill()) answer = connection.next();
  ASSERT_TRUE(answer);
  EXPECT_EQ(std::get<Welcome>(*answer).cookie, cookie);
  EXPECT_EQ(comm::all_reduce_value(world, 1, comm::ReduceOp::min, "heartbeat ready"), 1);
  connection.send(Goodbye{});
  connection.flush();
  world.barrier();
}

TEST(Heartbeat, GarbageOnThePortIsRefused) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    if (world.rank() == 1) return join_after_strangers(world);
    const comm::Heartbeat heartbeat(world, here(), nullptr, no_loss_expected());
    world.barrier();
  });
}

TEST(Heartbeat, OneRankNeedsNone) {
  comm::SelfCommunicator self;
  comm::Heartbeat heartbeat(self, {}, nullptr);
  heartbeat.announce_failure(6, "x");
  heartbeat.stop();
}

TEST(Heartbeat, ReportNamesTheRankBehindFirst) {
  comm::Activity ahead;
  ahead.set_step(12);
  ahead.begin("dp", "all_reduce", "grads", 40);
  comm::Activity behind;
  behind.set_step(12);
  behind.begin("dp", "all_reduce", "loss", 39);
  behind.complete("dp", 39);
  behind.set_step(11);
  ahead.set_waiting(true);
  ahead.set_phase("step");

  const std::string text =
      comm::describe_progress({"rank 0 (host n1, pid 1)", "rank 1 (host n2, pid 2)"},
                              {ahead.snapshot(), behind.snapshot()});

  EXPECT_EQ(
      text,
      "\n  rank 1 (host n2, pid 2) is behind: step 11, 1 operations, finished all_reduce 'loss' "
      "of group dp, operation 39, phase setup"
      "\n  rank 0 (host n1, pid 1): step 12, 1 operations, waits in all_reduce 'grads' of group "
      "dp, operation 40, phase step");
}

TEST(Heartbeat, ThreadsConnectAndLeaveInPeace) {
  comm::run_ranks(3, [](comm::Communicator& world) {
    comm::Heartbeat heartbeat(world, here(), std::make_shared<comm::Activity>(),
                              no_loss_expected());
    std::this_thread::sleep_for(std::chrono::milliseconds(50 * world.rank()));
    heartbeat.stop();
  });
}

constexpr int kManyRanks = 24;

/// Lowers the limits of open files for this process; a `hard` limit stays lowered.
void limit_descriptors(rlim_t soft, std::optional<rlim_t> hard = {}) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = soft;
  limit.rlim_max = hard.value_or(limit.rlim_max);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

void connect_many_ranks() {
  comm::run_ranks(kManyRanks, [](comm::Communicator& world) {
    comm::HeartbeatOptions options = no_loss_expected();
    options.connect_s = 3;
    comm::Heartbeat heartbeat(world, here(), nullptr, options);
    world.barrier();
    heartbeat.stop();
  });
}

TEST(Heartbeat, RaisesTheSoftLimitOfOpenFilesToWhatTheRanksNeed) {
  const int status = test::in_child([] {
    limit_descriptors(16);
    connect_many_ranks();
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur <= kManyRanks) fail(ErrorKind::internal, "limit {}", limit.rlim_cur);
  });

  EXPECT_EQ(test::shell_code(status), kExitDone);
}

TEST(Heartbeat, HardLimitOfOpenFilesBelowTheNeedEndsAllRanksWithTheNumbers) {
  const int status = test::in_child([] {
    limit_descriptors(16, 24);
    try {
      connect_many_ranks();
    } catch (const Error& error) {
      const std::string text = error.what();
      if (text.find("a connection to each of 23 ranks: 31 more open files are needed") ==
              std::string::npos ||
          text.find("the hard limit is 24") == std::string::npos)
        fail(ErrorKind::internal, "{}", text);
      throw;
    }
  });

  EXPECT_EQ(test::shell_code(status), exit_code(ErrorKind::resource));
}

}  // namespace
}  // namespace trireme::testing
