#pragma once
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/liveness/heartbeat_messages.hpp"
#include "core/unique_handle.hpp"

/// The heartbeat's sockets. For the files of this room only.
namespace trireme::heartbeat {

struct SocketTraits {
  using Raw = int;

  static Raw null() noexcept { return -1; }

  static void close(Raw fd) noexcept;
};

using Socket = UniqueHandle<SocketTraits>;
using Cookie = std::array<std::uint8_t, 16>;

/// One connection: non-blocking, keepalive on, with its unread and unsent bytes.
class Connection {
 public:
  explicit Connection(Socket socket);

  [[nodiscard]] int fd() const { return socket_.get(); }

  [[nodiscard]] bool wants_write() const { return !out_.empty(); }

  void send(const HeartbeatMessage& message) { out_ += encode(message); }

  /// Writes what the kernel takes. False: the connection is broken.
  bool flush();
  /// Reads what is there. False: the peer closed, the connection is broken or it brought garbage;
  /// messages before it can still be taken.
  bool fill();
  std::optional<HeartbeatMessage> next();

  /// No more sends: the peer reads the end after what was sent.
  void finish() const { ::shutdown(socket_.get(), SHUT_WR); }

 private:
  Socket socket_;
  std::string in_;
  std::string out_;
  bool garbage_ = false;
};

struct Listener {
  Socket socket;
  int port = 0;
};

/// Listens on all IPv4 interfaces at a free port. Throws Error(resource).
Listener listen_anywhere(int backlog);

/// An IPv4 interface of this node that is up.
struct Interface {
  std::string name;
  std::string address;
};

/// Most reachable first, loopback last.
std::vector<Interface> own_interfaces();

/// A connection to the address, or null if it does not answer in time.
std::optional<Connection> connect_to(const std::string& address, int port, double timeout_s);

Cookie random_cookie();
std::string hex(const Cookie& cookie);

}  // namespace trireme::heartbeat
