#include "comm/liveness/heartbeat_peer.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <sstream>
#include <thread>

#include "comm/agree.hpp"
#include "comm/descriptors.hpp"
#include "comm/scalars.hpp"
#include "core/error.hpp"

namespace trireme::comm::heartbeat {
namespace {

/// Raises the limit on open files on rank 0, so that it can accept a connection from every other
/// rank. If this fails, all ranks throw the error, so no rank tries to connect. Collective.
void reserve_descriptors(Communicator& world) {
  constexpr std::uint64_t kOwn = 8;           // listener, one unidentified connection, timers
  constexpr std::uint64_t kSpareFiles = 256;  // for the files of the run
  const auto peers = static_cast<std::uint64_t>(world.size() - 1);
  agree(world, world.rank() != 0 ? std::nullopt : capture([&] {
          raise_descriptor_limit(peers + kOwn, kSpareFiles,
                                 formatted("heartbeat, a connection to each of {} ranks", peers));
        }));
}

/// The data that a rank needs to connect to rank 0. It has a fixed maximum size, so one broadcast
/// is enough.
struct Invitation {
  std::string cookie;
  int port = 0;
  std::vector<std::string> addresses;
};

Invitation share_invitation(Communicator& world, const Invitation& mine) {
  std::string text(2048, '\0');
  if (world.rank() == 0) {
    std::string filled = formatted("{} {}", mine.cookie, mine.port);
    for (const auto& address : mine.addresses) {
      if (filled.size() + address.size() + 1 < text.size()) filled += ' ' + address;
    }
    filled.resize(text.size(), '\0');
    text = filled;
  }
  world
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
             const std::string& host, std::vector<Peer>& peers) {
  if (hello.cookie != invitation.cookie || hello.rank < 1) return false;
  const auto r = static_cast<std::size_t>(hello.rank);
  if (r >= peers.size() || peers[r].connection) return false;
  stranger.send(Welcome{invitation.cookie, host, ::getpid()});
  if (!stranger.flush()) return false;
  peers[r].connection = std::move(stranger);
  peers[r].host = hello.host;
  peers[r].pid = hello.pid;
  peers[r].heard.restart();
  return true;
}

std::string accept_all(const Listener& listener, const Invitation& invitation,
                       const std::string& host, double connect_s, std::vector<Peer>& peers) {
  const Timer timer;
  std::vector<Connection> strangers;  // connections that have not presented the cookie yet
  std::size_t missing = peers.size() - 1;
  while (missing > 0 && timer.seconds() < connect_s) {
    std::vector<pollfd> wait{{listener.socket.get(), POLLIN, 0}};
    for (const auto& stranger : strangers) wait.push_back({stranger.fd(), POLLIN, 0});
    ::poll(wait.data(), wait.size(), 100);
    Socket accepted(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (accepted && strangers.size() < peers.size() + 64)
      strangers.emplace_back(std::move(accepted));
    for (std::size_t i = 0; i < strangers.size();) {
      const bool open = strangers[i].fill();
      const auto message = strangers[i].next();
      const auto* hello = message ? std::get_if<Hello>(&*message) : nullptr;
      if (hello != nullptr && welcome(strangers[i], *hello, invitation, host, peers)) --missing;
      if (!open || message) {
        strangers.erase(strangers.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }
  if (missing == 0) return "";
  std::string absent;
  for (std::size_t r = 1; r < peers.size(); ++r)
    absent += peers[r].connection ? "" : formatted(" {}", r);
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
                 Peer& first) {
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
  return formatted("rank 0 does not answer on port {} of{}; check for a firewall between the nodes",
                   invitation.port, tried);
}

}  // namespace

std::string name_of(int rank, const std::string& host, int pid) {
  return formatted("rank {} (host {}, pid {})", rank, host, pid);
}

void connect_all(Communicator& world, const LaunchInfo& launch, double connect_s,
                 std::vector<Peer>& peers) {
  const int rank = world.rank();
  const std::string& host = launch.hostname;
  peers[static_cast<std::size_t>(rank)].host = host;
  peers[static_cast<std::size_t>(rank)].pid = static_cast<int>(::getpid());
  reserve_descriptors(world);
  Listener listener;
  Invitation mine;
  if (rank == 0) {
    listener = listen_anywhere(world.size());
    mine = {random_cookie(), listener.port, {}};
    for (const Interface& one : own_interfaces()) mine.addresses.push_back(one.address);
  }
  Invitation invitation = share_invitation(world, mine);
  if (launch.node == 0) {  // on rank 0's node, try loopback first: it works with every network
    std::rotate(invitation.addresses.begin(), invitation.addresses.end() - 1,
                invitation.addresses.end());
  }
  std::string problem = rank == 0 ? accept_all(listener, invitation, host, connect_s, peers)
                                  : join(invitation, rank, host, connect_s, peers[0]);
  const std::int32_t good = problem.empty() ? 1 : 0;
  if (all_reduce_value(world, good, ReduceOp::min, "heartbeat ready") == 1) return;
  if (problem.empty()) problem = "another rank could not connect";
  fail(ErrorKind::comm, "heartbeat of rank {}: {}", rank, problem);
}

}  // namespace trireme::comm::heartbeat
