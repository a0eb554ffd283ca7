#include "comm/liveness/heartbeat_peer.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <thread>

#include "comm/agree.hpp"
#include "comm/descriptors.hpp"
#include "comm/scalars.hpp"
#include "core/error.hpp"

namespace trireme::comm::heartbeat {
namespace {

/// A group of ranks. The first one accepts a connection of each other one.
struct Star {
  Communicator& group;
  std::vector<int> ranks;  // ranks in the world, in ascending order
  bool loopback_first;     // this rank and the first one are on one node
};

/// Raises the limit on open files of a rank that accepts `count` connections. If this fails on any
/// rank, all ranks throw the error, so no rank tries to connect. Collective over `world`.
void reserve_descriptors(Communicator& world, std::uint64_t count) {
  constexpr std::uint64_t kOwn = 8;           // listener, one unidentified connection, timers
  constexpr std::uint64_t kSpareFiles = 256;  // for the files of the run
  agree(world, count == 0 ? std::nullopt : capture([&] {
          raise_descriptor_limit(count + kOwn, kSpareFiles,
                                 formatted("heartbeat, a connection to each of {} ranks", count));
        }));
}

/// The data that a rank needs to connect to the first rank of its group. It has a fixed maximum
/// size, so one broadcast is enough.
struct Invitation {
  std::string cookie;
  int port = 0;
  std::vector<std::string> addresses;
};

Invitation share_invitation(Communicator& group, const Invitation& mine) {
  std::string text(2048, '\0');
  if (group.rank() == 0) {
    std::string filled = formatted("{} {}", mine.cookie, mine.port);
    for (const auto& address : mine.addresses) {
      if (filled.size() + address.size() + 1 < text.size()) filled += ' ' + address;
    }
    filled.resize(text.size(), '\0');
    text = filled;
  }
  group
      .broadcast({.data = text.data(),
                  .count = text.size(),
                  .dtype = DType::u8,
                  .root = 0,
                  .tag = "heartbeat address"})
      ->wait();
  Invitation invitation;
  std::istringstream in(text.substr(0, text.find('\0')));
  in >> invitation.cookie >> invitation.port;
  for (std::string address; in >> address;) invitation.addresses.push_back(address);
  return invitation;
}

bool welcome(Connection& stranger, const Hello& hello, const Invitation& invitation,
             const std::string& host, const Star& star, std::vector<Peer>& peers) {
  if (hello.cookie != invitation.cookie ||
      !std::binary_search(star.ranks.begin() + 1, star.ranks.end(), hello.rank))
    return false;
  const auto r = static_cast<std::size_t>(hello.rank);
  if (peers[r].connection) return false;
  stranger.send(Welcome{invitation.cookie, host, ::getpid()});
  if (!stranger.flush()) return false;
  peers[r].connection = std::move(stranger);
  peers[r].host = hello.host;
  peers[r].pid = hello.pid;
  peers[r].heard.restart();
  return true;
}

std::string accept_all(const Listener& listener, const Invitation& invitation,
                       const std::string& host, double connect_s, const Star& star,
                       std::vector<Peer>& peers) {
  const Timer timer;
  std::vector<Connection> strangers;  // connections that have not presented the cookie yet
  std::size_t missing = star.ranks.size() - 1;
  while (missing > 0 && timer.seconds() < connect_s) {
    std::vector<pollfd> wait{{listener.socket.get(), POLLIN, 0}};
    for (const auto& stranger : strangers) wait.push_back({stranger.fd(), POLLIN, 0});
    ::poll(wait.data(), wait.size(), 100);
    Socket accepted(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (accepted && strangers.size() < star.ranks.size() + 64)
      strangers.emplace_back(std::move(accepted));
    for (std::size_t i = 0; i < strangers.size();) {
      const bool open = strangers[i].fill();
      const auto message = strangers[i].next();
      const auto* hello = message ? std::get_if<Hello>(&*message) : nullptr;
      if (hello != nullptr && welcome(strangers[i], *hello, invitation, host, star, peers))
        --missing;
      if (!open || message) {
        strangers.erase(strangers.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }
  if (missing == 0) return "";
  std::string absent;
  for (std::size_t i = 1; i < star.ranks.size(); ++i) {
    const int r = star.ranks[i];
    absent += peers[static_cast<std::size_t>(r)].connection ? "" : formatted(" {}", r);
  }
  return formatted("these ranks did not connect within {} s:{}", connect_s, absent);
}

bool greet(Connection& connection, const Invitation& invitation, int rank, const std::string& host,
           Peer& first) {
  connection.send(Hello{invitation.cookie, rank, host, ::getpid()});
  const Timer timer;
  while (timer.seconds() < 3 && connection.flush()) {
    pollfd wait{connection.fd(), POLLIN, 0};
    ::poll(&wait, 1, 100);
    const bool open = connection.fill();
    const auto answer = connection.next();
    if (answer) {
      const auto* accepted = std::get_if<Welcome>(&*answer);
      if (accepted == nullptr || accepted->cookie != invitation.cookie) return false;
      first.host = accepted->host;
      first.pid = accepted->pid;
      first.heard.restart();
      return true;
    }
    if (!open) return false;
  }
  return false;
}

std::string join(const Invitation& invitation, int rank, const std::string& host, double connect_s,
                 int first_rank, Peer& first) {
  const Timer timer;
  do {
    for (const auto& address : invitation.addresses) {
      auto connection = connect_to(address, invitation.port, 2.0);
      if (connection && greet(*connection, invitation, rank, host, first)) {
        first.connection = std::move(*connection);
        return "";
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  } while (timer.seconds() < connect_s);
  std::string tried;
  for (const auto& address : invitation.addresses) tried += formatted(" {}", address);
  return formatted(
      "rank {} does not answer on port {} of{}; check for a firewall between the nodes", first_rank,
      invitation.port, tried);
}

/// Connects the ranks of a group to its first rank. Returns a problem; "" if all are connected.
/// Collective over the group.
std::string connect_star(const Star& star, int rank, const std::string& host, double connect_s,
                         std::vector<Peer>& peers) {
  Listener listener;
  Invitation mine;
  if (star.group.rank() == 0) {
    listener = listen_anywhere(star.group.size());
    mine = {random_cookie(), listener.port, {}};
    for (const Interface& one : own_interfaces()) mine.addresses.push_back(one.address);
  }
  Invitation invitation = share_invitation(star.group, mine);
  if (star.loopback_first) {  // loopback works with every network
    std::rotate(invitation.addresses.begin(), invitation.addresses.end() - 1,
                invitation.addresses.end());
  }
  if (star.group.rank() == 0) return accept_all(listener, invitation, host, connect_s, star, peers);
  const int first = star.ranks.front();
  return join(invitation, rank, host, connect_s, first, peers[static_cast<std::size_t>(first)]);
}

/// Tells rank 0 the hosts and process ids of the ranks that are connected to this leader.
void introduce_members(int parent, std::vector<Peer>& peers) {
  if (parent < 0) return;
  Connection& up = *peers[static_cast<std::size_t>(parent)].connection;
  for (std::size_t r = 0; r < peers.size(); ++r)
    if (peers[r].connection && static_cast<int>(r) != parent)
      up.send(Member{static_cast<int>(r), peers[r].host, peers[r].pid});
}

}  // namespace

std::string name_of(int rank, const std::string& host, int pid) {
  return formatted("rank {} (host {}, pid {})", rank, host, pid);
}

int connect_all(Communicator& world, const LaunchInfo& launch, double connect_s,
                std::vector<Peer>& peers) {
  const int rank = world.rank();
  const std::string& host = launch.hostname;
  peers[static_cast<std::size_t>(rank)].host = host;
  peers[static_cast<std::size_t>(rank)].pid = static_cast<int>(::getpid());
  std::unique_ptr<Communicator> node;
  std::unique_ptr<Communicator> leaders;
  std::vector<Star> stars;
  if (launch.num_nodes <= 1 || launch.num_nodes >= world.size()) {
    std::vector<int> ranks(peers.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    stars.push_back({world, std::move(ranks), launch.node == 0});
  } else {
    node = world.split(launch.node, rank, "heartbeat node");
    leaders = world.split(node->rank() == 0 ? 0 : -1, rank, "heartbeat leaders");
    for (const auto& group : {std::cref(node), std::cref(leaders)}) {
      if (group.get() == nullptr || group.get()->size() == 1) continue;
      stars.push_back({*group.get(), all_gather_value(*group.get(), rank, "heartbeat ranks"),
                       group.get() == node});
    }
  }
  std::uint64_t count = 0;
  for (const Star& star : stars)
    if (star.group.rank() == 0) count += star.ranks.size() - 1;
  reserve_descriptors(world, count);
  std::string problem;
  int parent = -1;
  for (const Star& star : stars) {
    if (star.group.rank() > 0) parent = star.ranks.front();
    const std::string its_problem = connect_star(star, rank, host, connect_s, peers);
    if (problem.empty()) problem = its_problem;
  }
  const std::int32_t good = problem.empty() ? 1 : 0;
  if (all_reduce_value(world, good, ReduceOp::min, "heartbeat ready") == 1) {
    introduce_members(parent, peers);
    return parent;
  }
  if (problem.empty()) problem = "another rank could not connect";
  fail(ErrorKind::comm, "heartbeat of rank {}: {}", rank, problem);
}

}  // namespace trireme::comm::heartbeat
