#pragma once
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/unique_handle.hpp"

/// The heartbeat's sockets and messages. For the files of this room only.
namespace trireme::heartbeat {

struct SocketTraits {
  using Raw = int;

  static Raw null() noexcept { return -1; }

  static void close(Raw fd) noexcept;
};

using Socket = UniqueHandle<SocketTraits>;
using Cookie = std::array<std::uint8_t, 16>;

/// Every message is a line of text: a letter and fields separated by tabs. Ranks are the same
/// binary on one job.
///   H cookie rank host pid      hello, rank to rank 0
///   W cookie                    welcome, rank 0's answer
///   S step operations sequence complete timed_out group operation tag phase waiting   status
///   L rank host pid code hung reason   a rank is lost (rank 0 to all)
///   F code reason               this rank ends with an error
///   G                           goodbye
using Fields = std::vector<std::string>;

/// One connection: non-blocking, keepalive on, with its unread and unsent bytes.
class Connection {
 public:
  explicit Connection(Socket socket);

  [[nodiscard]] int fd() const { return socket_.get(); }

  [[nodiscard]] bool wants_write() const { return !out_.empty(); }

  void send(const Fields& fields);
  /// Writes what the kernel takes. False: the connection is broken.
  bool flush();
  /// Reads what is there. False: the peer closed or the connection is broken; messages before it
  /// can still be taken.
  bool fill();
  std::optional<Fields> next();

  /// No more sends: the peer reads the end after what was sent.
  void finish() const { ::shutdown(socket_.get(), SHUT_WR); }

 private:
  Socket socket_;
  std::string in_;
  std::string out_;
};

struct Listener {
  Socket socket;
  int port = 0;
};

/// Listens on all IPv4 interfaces at a free port. Throws Error(resource).
Listener listen_anywhere(int backlog);

/// IPv4 addresses of this node that are up, most reachable first, loopback last.
std::vector<std::string> own_addresses();

/// A connection to the address, or null if it does not answer in time.
std::optional<Connection> connect_to(const std::string& address, int port, double timeout_s);

Cookie random_cookie();
std::string hex(const Cookie& cookie);

}  // namespace trireme::heartbeat
