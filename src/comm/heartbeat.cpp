#include "comm/heartbeat.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <sstream>
#include <thread>

#include "comm/heartbeat_wire.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/timer.hpp"

namespace trireme {
namespace {

using heartbeat::Connection;
using heartbeat::Fields;

constexpr double kGoodbye_s = 1.0;  // longest wait for the other side when leaving

std::string name_of(int rank, const std::string& host, int pid) {
  return cat("rank ", rank, " (host ", host, ", pid ", pid, ")");
}

/// Numbers from another rank of the same binary: anything else counts as 0.
template <class T>
T number(const std::string& text) {
  T value{};
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
          now.tag};
}

ActivitySnapshot parse_status(const Fields& f) {
  ActivitySnapshot now;
  if (f.size() < 9) return now;
  now.step = number<std::int64_t>(f[1]);
  now.operations = number<std::uint64_t>(f[2]);
  now.sequence = number<std::uint64_t>(f[3]);
  now.complete = f[4] == "1";
  now.timed_out = f[5] == "1";
  now.group = f[6];
  now.operation = f[7];
  now.tag = f[8];
  return now;
}

void leave_at_once(const PeerLoss& loss) {
  log::flush();
  _exit(loss.exit_code);
}

/// What the ranks that connect must know: everything fits one broadcast.
struct Invitation {
  std::string cookie;
  int port = 0;
  std::vector<std::string> addresses;
};

Invitation share_invitation(Communicator& world, const Invitation& mine) {
  std::string text(2048, '\0');
  if (world.rank() == 0) {
    std::string filled = cat(mine.cookie, ' ', mine.port);
    for (const auto& address : mine.addresses) {
      if (filled.size() + address.size() + 1 < text.size()) filled += ' ' + address;
    }
    filled.resize(text.size(), '\0');
    text = filled;
  }
  world.broadcast(text.data(), text.size(), DType::u8, 0, {}, "heartbeat address")->wait();
  Invitation invitation;
  std::istringstream in(text.substr(0, text.find('\0')));
  in >> invitation.cookie >> invitation.port;
  for (std::string address; in >> address;) invitation.addresses.push_back(address);
  return invitation;
}

}  // namespace

std::string describe_progress(const std::vector<std::string>& names,
                              const std::vector<ActivitySnapshot>& ranks) {
  std::vector<std::size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto place = [&](std::size_t r) {
    return std::tuple(ranks[r].step, ranks[r].operations, !ranks[r].complete);
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return place(a) < place(b);
  });
  constexpr std::size_t kMost = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(order.size(), kMost); ++i) {
    const auto& now = ranks[order[i]];
    text += cat("\n  ",
                names[order[i]],
                i == 0 && place(order[0]) < place(order.back()) ? " is behind" : "",
                ": step ",
                now.step,
                ", ",
                now.operations,
                " operations, ");
    if (now.operation.empty()) {
      text += "no collective yet";
    } else {
      text += cat(now.complete ? "finished " : "waits in ",
                  now.operation,
                  " '",
                  now.tag,
                  "' of group ",
                  now.group,
                  ", operation ",
                  now.sequence,
                  now.timed_out ? ", timed out" : "");
    }
  }
  if (order.size() > kMost) text += cat("\n  and ", order.size() - kMost, " ranks ahead of them");
  return text;
}

/// One rank's end of the star: rank 0 has a connection to everyone, the others one to rank 0.
class Heartbeat::Monitor {
 public:
  Monitor(Communicator& world,
          const LaunchInfo& launch,
          std::shared_ptr<Activity> activity,
          HeartbeatOptions options)
      : rank_(world.rank()),
        host_(launch.hostname),
        activity_(activity ? std::move(activity) : std::make_shared<Activity>()),
        options_(std::move(options)),
        peers_(static_cast<std::size_t>(world.size())),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!options_.on_loss) options_.on_loss = leave_at_once;
    connect_all(world, launch);
    thread_ = std::jthread([this] { run(); });
  }

  void stop() noexcept {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake();
    if (thread_.joinable()) thread_.join();
  }

  void announce(int exit_code, const std::string& why) noexcept {
    std::unique_lock lock(mutex_);
    failure_ = Fields{"F", cat(exit_code), why};
    lock.unlock();
    wake();
    lock.lock();
    told_.wait_for(lock, std::chrono::duration<double>(kGoodbye_s), [this] { return over_; });
  }

  [[nodiscard]] bool alive() const { return alive_; }

 private:
  struct Peer {
    std::optional<Connection>
        connection;  // none: this rank itself, not known to us, or has said goodbye
    std::string host = "?";
    int pid = 0;
    Timer heard;
    ActivitySnapshot now;
  };

  void wake() noexcept {
    const std::uint64_t one = 1;
    if (::write(wake_.get(), &one, sizeof one) < 0) return;  // full: it is awake
  }

  [[nodiscard]] std::string name(std::size_t r) const {
    return name_of(static_cast<int>(r), peers_[r].host, peers_[r].pid);
  }

  // Start: everyone connects to rank 0.

  void connect_all(Communicator& world, const LaunchInfo& launch) {
    peers_[static_cast<std::size_t>(rank_)].host = host_;
    peers_[static_cast<std::size_t>(rank_)].pid = static_cast<int>(::getpid());
    heartbeat::Listener listener;
    Invitation mine;
    if (rank_ == 0) {
      listener = heartbeat::listen_anywhere(world.size());
      mine = {
          heartbeat::hex(heartbeat::random_cookie()), listener.port, heartbeat::own_addresses()};
    }
    Invitation invitation = share_invitation(world, mine);
    if (launch.node == 0) {  // the same node as rank 0: loopback works whatever the network
      std::rotate(
          invitation.addresses.begin(), invitation.addresses.end() - 1, invitation.addresses.end());
    }
    std::string problem = rank_ == 0 ? accept_all(listener, invitation) : join(invitation);
    const std::int32_t good = problem.empty() ? 1 : 0;
    std::int32_t all_good = 0;
    world.all_reduce(&good, &all_good, 1, DType::i32, ReduceOp::min, {}, "heartbeat ready")->wait();
    if (all_good == 1) return;
    if (problem.empty()) problem = "another rank could not connect";
    fail(ErrorKind::comm, "heartbeat of rank ", rank_, ": ", problem);
  }

  std::string accept_all(const heartbeat::Listener& listener, const Invitation& invitation) {
    const Timer timer;
    std::vector<Connection> strangers;  // have not shown the cookie yet
    std::size_t missing = peers_.size() - 1;
    while (missing > 0 && timer.seconds() < options_.connect_s) {
      std::vector<pollfd> wait{{listener.socket.get(), POLLIN, 0}};
      for (const auto& stranger : strangers) wait.push_back({stranger.fd(), POLLIN, 0});
      ::poll(wait.data(), wait.size(), 100);
      heartbeat::Socket accepted(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (accepted && strangers.size() < peers_.size() + 64)
        strangers.emplace_back(std::move(accepted));
      for (std::size_t i = 0; i < strangers.size();) {
        const bool open = strangers[i].fill();
        const auto hello = strangers[i].next();
        if (hello && welcome(strangers[i], *hello, invitation)) --missing;
        if (!open || hello) {
          strangers.erase(strangers.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          ++i;
        }
      }
    }
    if (missing == 0) return "";
    std::string absent;
    for (std::size_t r = 1; r < peers_.size(); ++r)
      absent += peers_[r].connection ? "" : cat(" ", r);
    return cat("these ranks did not connect within ", options_.connect_s, " s:", absent);
  }

  bool welcome(Connection& stranger, const Fields& hello, const Invitation& invitation) {
    if (hello.size() < 5 || hello[0] != "H" || hello[1] != invitation.cookie) return false;
    const auto r = number<std::size_t>(hello[2]);
    if (r == 0 || r >= peers_.size() || peers_[r].connection) return false;
    stranger.send({"W", invitation.cookie, host_, cat(::getpid())});
    if (!stranger.flush()) return false;
    peers_[r].connection = std::move(stranger);
    peers_[r].host = hello[3];
    peers_[r].pid = number<int>(hello[4]);
    peers_[r].heard.restart();
    return true;
  }

  std::string join(const Invitation& invitation) {
    const Timer timer;
    do {
      for (const auto& address : invitation.addresses) {
        auto connection = heartbeat::connect_to(address, invitation.port, 2.0);
        if (connection && greet(*connection, invitation)) {
          peers_[0].connection = std::move(*connection);
          return "";
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    } while (timer.seconds() < options_.connect_s);
    std::string tried;
    for (const auto& address : invitation.addresses) tried += cat(" ", address);
    return cat("rank 0 does not answer on port ",
               invitation.port,
               " of",
               tried,
               "; a firewall between the nodes?");
  }

  bool greet(Connection& connection, const Invitation& invitation) {
    connection.send({"H", invitation.cookie, cat(rank_), host_, cat(::getpid())});
    const Timer timer;
    while (timer.seconds() < 3 && connection.flush()) {
      pollfd wait{connection.fd(), POLLIN, 0};
      ::poll(&wait, 1, 100);
      const bool open = connection.fill();
      const auto answer = connection.next();
      if (answer) {
        if (answer->size() < 4 || answer->at(0) != "W" || answer->at(1) != invitation.cookie)
          return false;
        peers_[0].host = answer->at(2);
        peers_[0].pid = number<int>(answer->at(3));
        peers_[0].heard.restart();
        return true;
      }
      if (!open) return false;
    }
    return false;
  }

  // The thread.

  void run() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are for the main thread
    report();
    while (!finished_) {
      wait_for_news();
      for (std::size_t r = 0; r < peers_.size() && !finished_; ++r) read(r);
      if (!finished_) obey();
      if (!finished_ && since_report_.seconds() >= options_.interval_s) report();
    }
    const std::lock_guard lock(mutex_);
    over_ = true;
    told_.notify_all();
  }

  void wait_for_news() {
    std::vector<pollfd> wait{{wake_.get(), POLLIN, 0}};
    for (const auto& peer : peers_) {
      if (!peer.connection) continue;
      const int write = peer.connection->wants_write() ? POLLOUT : 0;
      wait.push_back({peer.connection->fd(), static_cast<short>(POLLIN | write), 0});
    }
    ::poll(wait.data(), wait.size(), static_cast<int>(options_.interval_s * 1000));
    std::uint64_t count = 0;
    if (::read(wake_.get(), &count, sizeof count) < 0) return;  // nobody woke us
  }

  void read(std::size_t r) {
    Peer& peer = peers_[r];
    if (!peer.connection) return;
    const bool open = peer.connection->fill() && peer.connection->flush();
    while (!finished_ && peer.connection) {
      const auto message = peer.connection->next();
      if (!message) break;
      peer.heard.restart();
      handle(r, *message);
    }
    if (finished_ || !peer.connection) return;
    if (!open) {
      lost({static_cast<int>(r),
            peer.host,
            peer.pid,
            exit_code(ErrorKind::comm),
            "its connection ended without a goodbye"});
    } else if (peer.heard.seconds() > options_.silence_s) {
      lost({static_cast<int>(r),
            peer.host,
            peer.pid,
            exit_code(ErrorKind::comm),
            cat("silent for ", options_.silence_s, " s: its process is stopped or its node is")});
    }
  }

  void handle(std::size_t r, const Fields& message) {
    Peer& peer = peers_[r];
    const char kind = message[0].empty() ? '?' : message[0][0];
    if (kind == 'S') {
      peer.now = parse_status(message);
    } else if (kind == 'F' && message.size() >= 3) {
      lost({static_cast<int>(r),
            peer.host,
            peer.pid,
            number<int>(message[1]),
            "it ends with an error: " + message[2]});
    } else if (kind == 'L' && message.size() >= 6) {
      lost({number<int>(message[1]),
            message[2],
            number<int>(message[3]),
            number<int>(message[4]),
            message[5]});
    } else if (kind == 'G') {
      if (rank_ != 0) {  // rank 0 leaves: nobody watches any more
        peer.connection->send({"G"});
        peer.connection->flush();
        finished_ = true;
      }
      peer.connection.reset();
    }
  }

  /// Sends to every connection and waits a moment for the kernel to take it.
  void tell_all(const Fields& message) {
    const Timer timer;
    for (auto& peer : peers_) {
      if (!peer.connection) continue;
      peer.connection->send(message);
      while (peer.connection->flush() && peer.connection->wants_write() && timer.seconds() < 0.2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  void lost(const PeerLoss& loss) {
    finished_ = true;
    alive_ = false;
    if (rank_ == 0 && loss.rank != 0) {
      peers_[static_cast<std::size_t>(loss.rank)].connection.reset();
      tell_all(
          {"L", cat(loss.rank), loss.hostname, cat(loss.pid), cat(loss.exit_code), loss.reason});
    }
    if (rank_ == 0 || loss.rank == 0) {
      log::error(cat(name_of(loss.rank, loss.hostname, loss.pid), " is gone: ", loss.reason));
    }
    {
      const std::lock_guard lock(mutex_);
      if (failure_ || stopping_) return;  // this rank is leaving already, with a code of its own
    }
    options_.on_loss(loss);
  }

  /// What the main thread asks for: stop, or an announced failure.
  void obey() {
    std::unique_lock lock(mutex_);
    const auto failure = failure_;
    const bool stopping = stopping_;
    lock.unlock();
    if (failure) {
      if (rank_ == 0) {
        tell_all({"L",
                  "0",
                  host_,
                  cat(::getpid()),
                  failure->at(1),
                  "it ends with an error: " + failure->at(2)});
      } else {
        tell_all(*failure);
      }
      leave();
    } else if (stopping) {
      tell_all({"G"});
      leave();
    }
  }

  /// Closes after the other side has read what we sent, or after kGoodbye_s.
  void leave() {
    finished_ = true;
    const Timer timer;
    for (auto& peer : peers_) {
      if (peer.connection) peer.connection->finish();
    }
    for (auto& peer : peers_) {
      while (peer.connection && timer.seconds() < kGoodbye_s) {
        pollfd wait{peer.connection->fd(), POLLIN, 0};
        ::poll(&wait, 1, 50);
        const bool open = peer.connection->fill();
        while (peer.connection->next()) {
        }
        if (!open) peer.connection.reset();
      }
    }
  }

  void report() {
    since_report_.restart();
    const ActivitySnapshot now = activity_->snapshot();
    const Fields status = rank_ == 0 ? Fields{"P"} : status_fields(now);
    for (auto& peer : peers_) {
      if (!peer.connection) continue;
      peer.connection->send(status);
      peer.connection->flush();  // a broken one is found by read()
    }
    if (rank_ != 0) return;
    peers_[0].now = now;
    look_for_stall();
  }

  void look_for_stall() {
    std::vector<ActivitySnapshot> all;
    std::uint64_t moved = 0;
    bool timed_out = false;
    for (const auto& peer : peers_) {
      all.push_back(peer.now);
      moved += peer.now.operations + static_cast<std::uint64_t>(peer.now.step) * 1000003U;
      timed_out = timed_out || peer.now.timed_out;
    }
    if (moved != moved_) {
      moved_ = moved;
      since_moved_.restart();
      stall_reported_ = false;
    }
    const bool stalled = since_moved_.seconds() > options_.stall_s && !stall_reported_;
    if (!stalled && (!timed_out || timeout_reported_)) return;
    stall_reported_ = stall_reported_ || stalled;
    timeout_reported_ = timeout_reported_ || timed_out;
    std::vector<std::string> names;
    for (std::size_t r = 0; r < peers_.size(); ++r) names.push_back(name(r));
    log::warn(
        cat(timed_out ? "a collective timed out" : cat("no progress for ", options_.stall_s, " s"),
            "; ranks, the one behind first:",
            describe_progress(names, all)));
  }

  const int rank_;
  const std::string host_;
  const std::shared_ptr<Activity> activity_;
  HeartbeatOptions options_;
  std::vector<Peer> peers_;
  heartbeat::Socket wake_;
  std::atomic<bool> alive_ = true;
  bool finished_ = false;  // of the thread only, as are the timers below
  Timer since_report_;
  Timer since_moved_;
  std::uint64_t moved_ = 0;
  bool stall_reported_ = false;
  bool timeout_reported_ = false;

  std::mutex mutex_;
  std::condition_variable told_;
  bool stopping_ = false;
  bool over_ = false;
  std::optional<Fields> failure_;
  std::jthread thread_;  // last: ends before the rest
};

Heartbeat::Heartbeat(Communicator& world,
                     const LaunchInfo& launch,
                     std::shared_ptr<Activity> activity,
                     HeartbeatOptions options) {
  if (world.size() == 1) return;
  monitor_ = std::make_unique<Monitor>(world, launch, std::move(activity), std::move(options));
}

Heartbeat::~Heartbeat() {
  stop();
}

bool Heartbeat::peers_alive() const {
  return !monitor_ || monitor_->alive();
}

void Heartbeat::stop() noexcept {
  if (monitor_) monitor_->stop();
}

void Heartbeat::announce_failure(int exit_code, const std::string& why) noexcept {
  if (monitor_) monitor_->announce(exit_code, why);
}

}  // namespace trireme
