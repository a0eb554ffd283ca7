#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.hpp"

/// A client that sends bytes unchanged, including invalid requests.
namespace trireme::testing {

struct ClientAnswer {
  int status = 0;  // 0: the connection ended without an answer
  std::string head = {};
  std::string body = {};
  bool is_whole = false;  // has the announced length, or all chunks
};

class HttpClient {
 public:
  /// `receive_bytes`: how much the system may receive before the client reads; 0: the default, up
  /// to 32 MiB.
  explicit HttpClient(std::uint16_t port, int receive_bytes = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes > 0)
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_open_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }

  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  ~HttpClient() { ::close(socket_); }

  [[nodiscard]] bool is_open() const { return is_open_; }

  /// Returns false if the peer does not accept all bytes.
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }

  /// Reads so many bytes, or fewer if the peer closes. Returns the number of bytes.
  std::size_t take(std::size_t count) const {
    std::string bytes(count, '\0');
    const ssize_t got = ::recv(socket_, bytes.data(), count, MSG_WAITALL);
    return got > 0 ? static_cast<std::size_t>(got) : 0;
  }

  /// Closes the connection with a reset instead of an orderly shutdown.
  void vanish() const {
    const linger now{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }

  /// Returns true if the peer closes within `seconds` without sending more.
  bool ends_within(double seconds) { return !receive(seconds) && has_ended_; }

  /// Returns the next answer. Waits at most `seconds` for each part of it.
  ClientAnswer answer(double seconds = 20) {
    ClientAnswer answer;
    while (answer.status == 0 || answer.status == 100) {
      const std::size_t end = until("\r\n\r\n", seconds);
      if (end == std::string::npos) return answer;
      answer.head = buffer_.substr(0, end);
      buffer_.erase(0, end);
      answer.status = std::atoi(answer.head.c_str() + 9);
    }
    const std::string length = header(answer.head, "content-length");
    if (!length.empty()) {
      const auto size = static_cast<std::size_t>(std::atoll(length.c_str()));
      while (buffer_.size() < size && receive(seconds)) {
      }
      answer.is_whole = buffer_.size() >= size;
      answer.body = buffer_.substr(0, size);
      buffer_.erase(0, size);
    } else if (header(answer.head, "transfer-encoding") == "chunked") {
      read_chunks(answer, seconds);
    } else {
      while (receive(seconds)) {
      }
      answer.body = std::move(buffer_);
      answer.is_whole = true;
    }
    return answer;
  }

  /// Waits for this part of a stream. Returns its bytes, which stay in the buffer.
  std::string_view wait_for(std::string_view text, double seconds = 20) {
    (void)until(text, seconds);
    return buffer_;
  }

  /// Returns the header's value; the name is in lower case.
  static std::string header(const std::string& head, const std::string& name) {
    std::string lower = head;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::size_t at = lower.find("\r\n" + name + ": ");
    if (at == std::string::npos) return {};
    const std::size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }

 private:
  std::size_t until(std::string_view text, double seconds) {
    std::size_t at = 0;
    while ((at = buffer_.find(text)) == std::string::npos) {
      if (!receive(seconds)) return at;
    }
    return at + text.size();
  }

  void read_chunks(ClientAnswer& answer, double seconds) {
    while (true) {
      const std::size_t line = until("\r\n", seconds);
      if (line == std::string::npos) return;
      const std::size_t size = std::strtoull(buffer_.c_str(), nullptr, 16);
      while (buffer_.size() < line + size + 2) {
        if (!receive(seconds)) return;
      }
      answer.body += buffer_.substr(line, size);
      buffer_.erase(0, line + size + 2);
      if (size == 0) {
        answer.is_whole = true;
        return;
      }
    }
  }

  bool receive(double seconds) {
    pollfd readable{socket_, POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(seconds * 1000)) <= 0) return false;
    char bytes[65536];
    const ssize_t count = ::recv(socket_, bytes, sizeof bytes, 0);
    has_ended_ = count <= 0;
    if (count > 0) buffer_.append(bytes, static_cast<std::size_t>(count));
    return count > 0;
  }

  int socket_;
  bool is_open_ = false;
  bool has_ended_ = false;
  std::string buffer_;
};

/// Returns a whole request with a body.
inline std::string post(const std::string& path, const std::string& body,
                        const std::string& headers = "") {
  return formatted("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{}\r\n{}", path,
                   body.size(), headers, body);
}

inline std::string get(const std::string& path, const std::string& headers = "",
                       const std::string& method = "GET") {
  return formatted("{} {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", method, path, headers);
}

}  // namespace trireme::testing
