#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/liveness/heartbeat_messages.hpp"
#include "core/files/file.hpp"

/// The sockets of the heartbeat. Private to this directory.
namespace trireme::comm::heartbeat {

using Socket = Fd;

/// A non-blocking TCP connection with keepalive probes and buffers for received and unsent bytes.
class Connection {
 public:
  explicit Connection(Socket socket);

  [[nodiscard]] int fd() const { return socket_.get(); }

  [[nodiscard]] bool wants_write() const { return !out_.empty(); }

  void send(const HeartbeatMessage& message) { out_ += encode(message); }

  /// Writes as much as the kernel accepts. Returns false if the connection is broken.
  bool flush();
  /// Reads the available bytes. Returns false if the peer closed the connection, the connection is
  /// broken, or invalid bytes arrived. next() still returns the complete messages that arrived
  /// before.
  bool fill();
  std::optional<HeartbeatMessage> next();

  /// Closes the connection for sending: after the last message, the peer reads the end of the
  /// stream.
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

/// Returns the interfaces of this node that are up; loopback comes last.
std::vector<Interface> own_interfaces();

/// Connects to the address; nullopt if it does not answer in time.
std::optional<Connection> connect_to(const std::string& address, int port, double timeout_s);

/// Returns 128 random bits as hexadecimal digits.
std::string random_cookie();

}  // namespace trireme::comm::heartbeat
