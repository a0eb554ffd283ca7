#include "faults/socket_world.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <string>
#include <tuple>

#include "comm/p2p/group_communicator.hpp"
#include "core/error.hpp"

namespace trireme::testing {
namespace {

struct Header {
  std::uint64_t group = 0;
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
};

/// All received messages of one rank, for any group.
class Mailboxes {
 public:
  explicit Mailboxes(std::vector<Fd> row) : peers_(row.size()) {
    for (std::size_t i = 0; i < row.size(); ++i) peers_[i].fd = std::move(row[i]);
  }

  /// Returns the position in the stream to this rank where the message ends, in bytes.
  std::uint64_t send(int to, Header header, const void* data) {
    Peer& peer = peers_[static_cast<std::size_t>(to)];
    peer.out.append(reinterpret_cast<const char*>(&header), sizeof header);
    if (header.bytes > 0) peer.out.append(static_cast<const char*>(data), header.bytes);
    const std::uint64_t end = peer.left + peer.out.size();
    flush(peer);
    return end;
  }

  /// Returns true if the stream to this rank has been sent up to `end`. Sent bytes outlive this
  /// process.
  bool has_left(int to, std::uint64_t end) {
    const Peer& peer = peers_[static_cast<std::size_t>(to)];
    if (peer.left < end) progress();
    return peer.left >= end || peer.gone;
  }

  /// Returns the next message of this sender, group and tag if it has arrived.
  bool take(int from, std::uint64_t group, std::uint64_t tag, std::string& into) {
    progress();
    const auto found = arrived_.find({from, group, tag});
    if (found == arrived_.end()) {
      if (peers_[static_cast<std::size_t>(from)].gone)
        fail(ErrorKind::comm, "rank {} is gone", from);
      return false;
    }
    into = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) arrived_.erase(found);
    return true;
  }

  void progress() {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (!peers_[i].fd) continue;
      flush(peers_[i]);
      fill(peers_[i], static_cast<int>(i));
    }
  }

  void pause() {
    std::vector<pollfd> wait;
    for (const Peer& peer : peers_) {
      const int write = peer.out.empty() ? 0 : POLLOUT;
      if (peer.fd) wait.push_back({peer.fd.get(), static_cast<short>(POLLIN | write), 0});
    }
    ::poll(wait.data(), wait.size(), 5);
  }

 private:
  struct Peer {
    Fd fd;
    std::string in;
    std::string out;
    std::uint64_t left = 0;  ///< bytes of `out` that the socket has taken so far
    bool gone = false;
  };

  static void flush(Peer& peer) {
    while (!peer.out.empty() && peer.fd) {
      const auto n =
          ::send(peer.fd.get(), peer.out.data(), peer.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) return;  // the buffer is full or the peer is gone; reading shows which
      peer.out.erase(0, static_cast<std::size_t>(n));
      peer.left += static_cast<std::uint64_t>(n);
    }
  }

  void fill(Peer& peer, int from) {
    std::array<char, 65536> buffer{};
    while (true) {
      const auto n = ::recv(peer.fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (n <= 0) {
        peer.gone = true;
        peer.fd.reset();
        break;
      }
      peer.in.append(buffer.data(), static_cast<std::size_t>(n));
    }
    Header header;
    while (peer.in.size() >= sizeof header) {
      std::memcpy(&header, peer.in.data(), sizeof header);
      if (peer.in.size() < sizeof header + header.bytes) return;
      arrived_[{from, header.group, header.tag}].push_back(
          peer.in.substr(sizeof header, header.bytes));
      peer.in.erase(0, sizeof header + header.bytes);
    }
  }

  std::vector<Peer> peers_;
  std::map<std::tuple<int, std::uint64_t, std::uint64_t>, std::deque<std::string>> arrived_;
};

class Sent final : public comm::Transfer {
 public:
  Sent(std::shared_ptr<Mailboxes> mailboxes, int to, std::uint64_t end)
      : mailboxes_(std::move(mailboxes)), to_(to), end_(end) {}

  bool done() override { return mailboxes_->has_left(to_, end_); }

 private:
  const std::shared_ptr<Mailboxes> mailboxes_;
  const int to_;
  const std::uint64_t end_;
};

class SocketTransport;

class Received final : public comm::Transfer {
 public:
  Received(SocketTransport& transport, int peer, int tag, void* data, std::uint64_t bytes);
  Received(const Received&) = delete;
  Received& operator=(const Received&) = delete;
  ~Received() override;
  bool done() override;

  bool ready = false;
  const int peer;
  const int tag;
  void* const data;
  const std::uint64_t bytes;

 private:
  SocketTransport& transport_;
};

class SocketTransport final : public comm::GroupTransport {
 public:
  SocketTransport(std::shared_ptr<Mailboxes> mailboxes, std::uint64_t group,
                  std::vector<int> world_ranks, int rank)
      : comm::GroupTransport(group, std::move(world_ranks), rank),
        mailboxes_(std::move(mailboxes)) {}

  [[nodiscard]] const char* backend() const override { return "sockets"; }

  [[nodiscard]] std::shared_ptr<comm::GroupTransport> another(std::uint64_t group,
                                                              std::vector<int> world_ranks,
                                                              int rank) const override {
    return std::make_shared<SocketTransport>(mailboxes_, group, std::move(world_ranks), rank);
  }

  comm::TransferPtr receive(int peer, int tag, void* data, std::uint64_t bytes) override {
    return std::make_unique<Received>(*this, peer, tag, data, bytes);
  }

  void pause(double) override { mailboxes_->pause(); }

  /// Receives of one sender and tag complete in the order of their start.
  void drive(int peer, int tag) {
    auto& waiting = waiting_[{peer, tag}];
    std::string message;
    while (!waiting.empty() &&
           mailboxes_->take(world_rank(peer), group(), static_cast<std::uint64_t>(tag), message)) {
      Received& first = *waiting.front();
      if (message.size() != first.bytes)
        fail(ErrorKind::usage, "rank {} sends {} bytes, not {}", peer, message.size(), first.bytes);
      if (!message.empty()) std::memcpy(first.data, message.data(), message.size());
      first.ready = true;
      waiting.pop_front();
    }
  }

  void add(Received* one) { waiting_[{one->peer, one->tag}].push_back(one); }

  void remove(Received* one) { std::erase(waiting_[{one->peer, one->tag}], one); }

 protected:
  comm::TransferPtr start_send(int peer, int tag, const void* data, std::uint64_t bytes) override {
    const int to = world_rank(peer);
    const std::uint64_t end =
        mailboxes_->send(to, {group(), static_cast<std::uint64_t>(tag), bytes}, data);
    return std::make_unique<Sent>(mailboxes_, to, end);
  }

 private:
  const std::shared_ptr<Mailboxes> mailboxes_;
  std::map<std::pair<int, int>, std::deque<Received*>> waiting_;
};

Received::Received(SocketTransport& transport, int peer_rank, int tag_number, void* into,
                   std::uint64_t size)
    : peer(peer_rank), tag(tag_number), data(into), bytes(size), transport_(transport) {
  transport_.add(this);
}

Received::~Received() {
  if (!ready) transport_.remove(this);
}

bool Received::done() {
  if (!ready) transport_.drive(peer, tag);
  return ready;
}

}  // namespace

SocketMesh::SocketMesh(int size) : rows_(static_cast<std::size_t>(size)) {
  for (auto& row : rows_) row.resize(rows_.size());
  for (std::size_t a = 0; a < rows_.size(); ++a) {
    for (std::size_t b = a + 1; b < rows_.size(); ++b) {
      std::array<int, 2> pair{-1, -1};
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
        fail(ErrorKind::internal, "socketpair: {}", std::strerror(errno));
      rows_[a][b] = Fd(pair[0]);
      rows_[b][a] = Fd(pair[1]);
    }
  }
}

std::vector<Fd> SocketMesh::take(int rank) {
  std::vector<Fd> row = std::move(rows_[static_cast<std::size_t>(rank)]);
  rows_.clear();
  return row;
}

std::unique_ptr<comm::Communicator> make_socket_world(std::vector<Fd> row, int rank,
                                                      const comm::CommOptions& options) {
  std::vector<int> ranks(row.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto mailboxes = std::make_shared<Mailboxes>(std::move(row));
  return comm::make_group("world",
                          std::make_shared<SocketTransport>(mailboxes, 0, std::move(ranks), rank),
                          std::make_shared<comm::Engine>(), options);
}

}  // namespace trireme::testing
