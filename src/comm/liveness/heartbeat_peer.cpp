#include "comm/liveness/heartbeat_peer.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include "comm/scalars.hpp"
#include "core/error.hpp"

namespace trireme::heartbeat {
namespace {

/// What the ranks that connect must know: everything fits one broadcast.
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

bool welcome(Connection& stranger, const Fields& hello, const Invitation& invitation,
             const std::string& host, std::vector<Peer>& peers) {
  if (hello.size() < 5 || hello[0] != "H" || hello[1] != invitation.cookie) return false;
  const auto r = static_cast<std::size_t>(number(hello[2]));
  if (r == 0 || r >= peers.size() || peers[r].connection) return false;
  stranger.send({"W", invitation.cookie, host, cat(::getpid())});
  if (!stranger.flush()) return false;
  peers[r].connection = std::move(stranger);
  peers[r].host = hello[3];
  peers[r].pid = static_cast<int>(number(hello[4]));
  peers[r].heard.restart();
  return true;
}

std::string accept_all(const Listener& listener, const Invitation& invitation,
                       const std::string& host, double connect_s, std::vector<Peer>& peers) {
  const Timer timer;
  std::vector<Connection> strangers;  // have not shown the cookie yet
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
      const auto hello = strangers[i].next();
      if (hello && welcome(strangers[i], *hello, invitation, host, peers)) --missing;
      if (!open || hello) {
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
  connection.send({"H", invitation.cookie, cat(rank), host, cat(::getpid())});
  const Timer timer;
  while (timer.seconds() < 3 && connection.flush()) {
    pollfd wait{connection.fd(), POLLIN, 0};
    ::poll(&wait, 1, 100);
    const bool open = connection.fill();
    const auto answer = connection.next();
    if (answer) {
      if (answer->size() < 4 || answer->at(0) != "W" || answer->at(1) != invitation.cookie)
        return false;
      first.host = answer->at(2);
      first.pid = static_cast<int>(number(answer->at(3)));
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
  return formatted("rank 0 does not answer on port {} of{}; a firewall between the nodes?",
                   invitation.port, tried);
}

}  // namespace

std::string name_of(int rank, const std::string& host, int pid) {
  return formatted("rank {} (host {}, pid {})", rank, host, pid);
}

std::int64_t number(const std::string& text) {
  std::int64_t value = 0;
  std::istringstream(text) >> value;
  return value;
}

Fields status_fields(const ActivitySnapshot& now) {
  return {"S",
          cat(now.step),
          cat(now.operations),
          cat(now.sequence),
          cat(now.complete),
          cat(now.timed_out),
          now.group,
          now.operation,
          now.tag,
          now.phase,
          cat(now.waiting)};
}

ActivitySnapshot parse_status(const Fields& f) {
  ActivitySnapshot now;
  if (f.size() < 11) return now;
  now.step = number(f[1]);
  now.operations = static_cast<std::uint64_t>(number(f[2]));
  now.sequence = static_cast<std::uint64_t>(number(f[3]));
  now.complete = f[4] == "1";
  now.timed_out = f[5] == "1";
  now.group = f[6];
  now.operation = f[7];
  now.tag = f[8];
  now.phase = f[9];
  now.waiting = f[10] == "1";
  return now;
}

void connect_all(Communicator& world, const LaunchInfo& launch, double connect_s,
                 std::vector<Peer>& peers) {
  const int rank = world.rank();
  const std::string& host = launch.hostname;
  peers[static_cast<std::size_t>(rank)].host = host;
  peers[static_cast<std::size_t>(rank)].pid = static_cast<int>(::getpid());
  Listener listener;
  Invitation mine;
  if (rank == 0) {
    listener = listen_anywhere(world.size());
    mine = {hex(random_cookie()), listener.port, own_addresses()};
  }
  Invitation invitation = share_invitation(world, mine);
  if (launch.node == 0) {  // the same node as rank 0: loopback works whatever the network
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

}  // namespace trireme::heartbeat
