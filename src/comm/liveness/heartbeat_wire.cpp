#include "comm/liveness/heartbeat_wire.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/error.hpp"
#include "core/hash/hex.hpp"

namespace trireme::comm::heartbeat {
namespace {

constexpr std::size_t kMaxUnread = 64 << 10;

void set(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

/// Lets the kernel detect a lost node: after 5 s without traffic, it sends 3 probes at intervals of
/// 2 s. The same limit applies to data without acknowledgement.
void set_keepalive(int fd) {
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 11000);
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

Connection::Connection(Socket socket) : socket_(std::move(socket)) {
  ::fcntl(fd(), F_SETFL, O_NONBLOCK);
  set_keepalive(fd());
}

bool Connection::flush() {
  while (!out_.empty()) {
    const auto n = ::send(fd(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (n < 0) return would_block();
    out_.erase(0, static_cast<std::size_t>(n));
  }
  return true;
}

bool Connection::fill() {
  if (garbage_) return false;
  std::array<char, 4096> buffer{};
  while (true) {
    const auto n = ::recv(fd(), buffer.data(), buffer.size(), 0);
    if (n == 0) return false;
    if (n < 0) return would_block();
    in_.append(buffer.data(), static_cast<std::size_t>(n));
    if (in_.size() > kMaxUnread) return true;  // the caller must take the messages first
  }
}

std::optional<HeartbeatMessage> Connection::next() {
  if (garbage_) return std::nullopt;
  Decoded first = decode(in_);
  garbage_ = first.garbage;
  in_.erase(0, first.used);
  return std::move(first.message);
}

Listener listen_anywhere(int backlog) {
  Listener listener{Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), 0};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!listener.socket || ::bind(listener.socket.get(), generic, length) != 0 ||
      ::listen(listener.socket.get(), backlog) != 0 ||
      ::getsockname(listener.socket.get(), generic, &length) != 0) {
    fail(ErrorKind::resource, "heartbeat: no TCP port to listen on: {}", std::strerror(errno));
  }
  ::fcntl(listener.socket.get(), F_SETFL, O_NONBLOCK);
  listener.port = ntohs(address.sin_port);
  return listener;
}

std::vector<Interface> own_interfaces() {
  std::vector<Interface> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) == 0) {
    for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
      if ((i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0) continue;
      std::array<char, INET_ADDRSTRLEN> text{};
      const auto* address = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
      ::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
      found.push_back({i->ifa_name, text.data()});
    }
    ::freeifaddrs(list);
  }
  found.push_back({"lo", "127.0.0.1"});
  return found;
}

std::optional<Connection> connect_to(const std::string& address, int port, double timeout_s) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return std::nullopt;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) return std::nullopt;
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
    if (errno != EINPROGRESS) return std::nullopt;
    pollfd wait{socket.get(), POLLOUT, 0};
    if (::poll(&wait, 1, static_cast<int>(timeout_s * 1000)) <= 0) return std::nullopt;
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return std::nullopt;
  }
  return Connection(std::move(socket));
}

std::string random_cookie() {
  std::array<std::uint8_t, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    fail(ErrorKind::resource, "heartbeat: no random bytes: {}", std::strerror(errno));
  std::string text;
  for (const std::uint8_t byte : bytes) text += hex_text(byte);
  return text;
}

}  // namespace trireme::comm::heartbeat
