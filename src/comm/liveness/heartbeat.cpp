#include "comm/liveness/heartbeat.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "comm/liveness/heartbeat_peer.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/timer.hpp"

namespace trireme::comm {
namespace {

using heartbeat::Alive;
using heartbeat::Failure;
using heartbeat::Goodbye;
using heartbeat::HeartbeatMessage;
using heartbeat::Lost;
using heartbeat::Member;
using heartbeat::name_of;
using heartbeat::Peer;
using heartbeat::Relayed;
using heartbeat::Status;

constexpr double kTogether_s = 0.01;  // messages within this time are handled together
constexpr double kGoodbye_s = 1.0;    // longest wait for the other side when this rank exits

PeerLoss loss_of(int rank, const std::string& host, int pid, const Failure& failure) {
  return {rank,
          host,
          pid,
          failure.exit_code,
          "it ends with an error: " + failure.reason,
          /*hung=*/failure.exit_code == exit_code(ErrorKind::comm)};
}

void leave_at_once(const PeerLoss& loss) {
  log::flush();
  _exit(loss.exit_code);
}

}  // namespace

/// The heartbeat of one rank in the tree of connections (heartbeat_peer.hpp). The leader of a node
/// passes messages between rank 0 and the other ranks of its node.
class Heartbeat::Monitor {
 public:
  Monitor(Communicator& world, const LaunchInfo& launch, std::shared_ptr<Activity> activity,
          HeartbeatOptions options)
      : rank_(world.rank()),
        host_(launch.hostname),
        activity_(activity ? std::move(activity) : std::make_shared<Activity>()),
        options_(std::move(options)),
        peers_(static_cast<std::size_t>(world.size())),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        stall_(options_.hang) {
    if (!options_.on_loss) options_.on_loss = leave_at_once;
    const int parent = heartbeat::connect_all(world, launch, options_.connect_s, peers_);
    if (parent >= 0) parent_ = static_cast<std::size_t>(parent);
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
    const std::chrono::duration<double> moment(kGoodbye_s);
    // If this rank only lost a peer, wait for the report of rank 0, so that the other ranks do not
    // take this rank for the cause.
    if (exit_code == trireme::exit_code(ErrorKind::comm) &&
        changed_.wait_for(lock, moment, [this] { return over_; }))
      return;
    failure_ = Failure{exit_code, why};
    lock.unlock();
    wake();
    lock.lock();
    changed_.wait_for(lock, moment, [this] { return over_; });
  }

 private:
  void wake() noexcept {
    const std::uint64_t one = 1;
    // the counter is full, so the thread is awake
    if (::write(wake_.get(), &one, sizeof one) < 0) return;
  }

  [[nodiscard]] std::string name(std::size_t r) const {
    return name_of(static_cast<int>(r), peers_[r].host, peers_[r].pid);
  }

  // The following functions run on the heartbeat thread.

  void run() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are for the main thread
    report();
    while (!finished_) {
      for (const std::size_t r : wait_for_news()) {
        if (!finished_) read(r);
      }
      if (!finished_) handle_requests();
      if (!finished_ && since_report_.seconds() >= options_.interval_s) {
        check_silence();
        if (!finished_) report();
      }
    }
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }

  /// Waits for messages, but not beyond the next report. The costs of a call grow with the number
  /// of connections, so there are at most 100 calls per second. Returns the ranks that can be read.
  std::vector<std::size_t> wait_for_news() {
    const double pause_s = kTogether_s - since_news_.seconds();
    if (pause_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
    std::vector<pollfd> wait{{wake_.get(), POLLIN, 0}};
    std::vector<std::size_t> ranks;
    for (std::size_t r = 0; r < peers_.size(); ++r) {
      const auto& connection = peers_[r].connection;
      if (!connection) continue;
      const int write = connection->wants_write() ? POLLOUT : 0;
      wait.push_back({connection->fd(), static_cast<short>(POLLIN | write), 0});
      ranks.push_back(r);
    }
    const double rest_s = std::max(0.0, options_.interval_s - since_report_.seconds());
    ::poll(wait.data(), wait.size(), static_cast<int>(std::ceil(rest_s * 1000)));
    since_news_.restart();
    std::uint64_t count = 0;
    if (::read(wake_.get(), &count, sizeof count) < 0) count = 0;  // no wake-up call
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (wait[i + 1].revents != 0) ready.push_back(ranks[i]);
    return ready;
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
      lost({static_cast<int>(r), peer.host, peer.pid, exit_code(ErrorKind::comm),
            "its connection closed unexpectedly"});
    }
  }

  void check_silence() {
    for (std::size_t r = 0; r < peers_.size() && !finished_; ++r) {
      Peer& peer = peers_[r];
      if (!peer.connection || peer.heard.seconds() <= options_.silence_s) continue;
      lost({static_cast<int>(r), peer.host, peer.pid, exit_code(ErrorKind::comm),
            formatted("silent for {} s: its process or its node has stopped", options_.silence_s),
            /*hung=*/true});
    }
  }

  /// Returns the state of a rank that another rank has named; null for a rank that does not exist.
  [[nodiscard]] Peer* named(int rank) {
    return rank >= 0 && static_cast<std::size_t>(rank) < peers_.size()
               ? &peers_[static_cast<std::size_t>(rank)]
               : nullptr;
  }

  void handle(std::size_t r, const HeartbeatMessage& message) {
    Peer& peer = peers_[r];
    if (const auto* status = std::get_if<Status>(&message)) {
      peer.now = status->now;
    } else if (const auto* of_other = std::get_if<Relayed>(&message)) {
      if (Peer* const other = named(of_other->rank)) other->now = of_other->now;
    } else if (const auto* member = std::get_if<Member>(&message)) {
      if (Peer* const other = named(member->rank)) {
        other->host = member->host;
        other->pid = member->pid;
      }
    } else if (const auto* failure = std::get_if<Failure>(&message)) {
      lost(loss_of(static_cast<int>(r), peer.host, peer.pid, *failure));
    } else if (const auto* relayed = std::get_if<Lost>(&message)) {
      lost(relayed->loss);
    } else if (std::holds_alternative<Goodbye>(message)) {
      const bool ends = r == parent_;  // no rank detects failures of this rank any more
      if (ends) send_to_all(Goodbye{});
      peer.connection.reset();
      if (ends) leave();
    }
  }

  /// Sends a message on every connection and waits briefly until the kernel accepts it.
  void send_to_all(const HeartbeatMessage& message) {
    const Timer timer;
    for (auto& peer : peers_) {
      if (!peer.connection) continue;
      peer.connection->send(message);
      while (peer.connection->flush() && peer.connection->wants_write() && timer.seconds() < 0.2)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void lost(const PeerLoss& loss) {
    finished_ = true;
    if (is_hub()) send_to_all(Lost{loss});
    if (rank_ == 0 || loss.rank == 0)
      log::error(
          formatted("{} is gone: {}", name_of(loss.rank, loss.hostname, loss.pid), loss.reason));
    {
      const std::lock_guard lock(mutex_);
      if (failure_ || stopping_) return;  // this rank is already leaving with its own exit code
    }
    options_.on_loss(loss);
  }

  /// Handles requests of the main thread: stop, or an announced failure.
  void handle_requests() {
    std::unique_lock lock(mutex_);
    const auto failure = failure_;
    const bool stopping = stopping_;
    lock.unlock();
    if (failure) {
      if (is_hub()) {
        send_to_all(Lost{loss_of(rank_, host_, ::getpid(), *failure)});
      } else {
        send_to_all(*failure);
      }
      leave();
    } else if (stopping) {
      send_to_all(Goodbye{});
      leave();
    }
  }

  /// Closes the connections after the other side has read everything, or after kGoodbye_s.
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
    for (std::size_t r = 0; r < peers_.size(); ++r) {
      auto& connection = peers_[r].connection;
      if (!connection) continue;
      if (r == parent_) {
        send_activities(*connection, now);
      } else {
        connection->send(Alive{});
      }
      connection->flush();  // read() finds a broken connection
    }
    if (rank_ != 0) return;
    peers_[0].now = now;
    look_for_stall();
  }

  /// Sends the activities of this rank and of the ranks that are connected to it.
  void send_activities(heartbeat::Connection& parent, const ActivitySnapshot& now) {
    parent.send(Status{now});
    for (std::size_t r = 0; r < peers_.size(); ++r)
      if (r != parent_ && peers_[r].connection)
        parent.send(Relayed{static_cast<int>(r), peers_[r].now});
  }

  /// Returns true if other ranks are connected to this rank.
  [[nodiscard]] bool is_hub() const {
    for (std::size_t r = 0; r < peers_.size(); ++r)
      if (r != parent_ && peers_[r].connection) return true;
    return false;
  }

  void look_for_stall() {
    std::vector<ActivitySnapshot> all;
    bool timed_out = false;
    for (const auto& peer : peers_) {
      all.push_back(peer.now);
      timed_out = timed_out || peer.now.timed_out;
    }
    const StallWatch::Stall stall = stall_.look(since_start_.seconds(), all);
    const bool first_timeout = timed_out && !timeout_reported_;
    timeout_reported_ = timeout_reported_ || timed_out;
    if (!stall.warn && !stall.hung && !first_timeout) return;
    std::vector<std::string> names;
    for (std::size_t r = 0; r < peers_.size(); ++r) names.push_back(name(r));
    log::warn(formatted("{}; ranks, the one behind first:{}",
                        first_timeout
                            ? "a collective timed out"
                            : formatted("no progress for {} s", std::lround(stall.still_s)),
                        describe_progress(names, all)));
    if (!stall.hung) return;
    const Peer& behind = peers_[stall.behind];
    lost({static_cast<int>(stall.behind), behind.host, behind.pid, exit_code(ErrorKind::comm),
          formatted("hangs: no rank moved for {} s, it is behind", std::lround(stall.still_s)),
          /*hung=*/true});
  }

  const int rank_;
  const std::string host_;
  const std::shared_ptr<Activity> activity_;
  HeartbeatOptions options_;
  std::vector<Peer> peers_;
  std::optional<std::size_t> parent_;  // rank 0 or the leader of the node; none on rank 0
  heartbeat::Socket wake_;
  bool finished_ = false;  // used by the thread only, like the timers below
  Timer since_report_;
  Timer since_news_;
  RunningTimer since_start_;
  StallWatch stall_;
  bool timeout_reported_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool over_ = false;
  std::optional<Failure> failure_;
  std::jthread thread_;  // last member, so that the thread ends before the others
};

Heartbeat::Heartbeat(Communicator& world, const LaunchInfo& launch,
                     std::shared_ptr<Activity> activity, HeartbeatOptions options) {
  if (world.size() == 1) return;
  monitor_ = std::make_unique<Monitor>(world, launch, std::move(activity), std::move(options));
}

Heartbeat::~Heartbeat() {
  stop();
}

void Heartbeat::stop() noexcept {
  if (monitor_) monitor_->stop();
}

void Heartbeat::announce_failure(int exit_code, const std::string& why) noexcept {
  if (monitor_) monitor_->announce(exit_code, why);
}

}  // namespace trireme::comm
