#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "http/http_message.hpp"

namespace trireme {

struct HttpConfig {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free one
  int num_threads = 2;
  std::size_t max_head_bytes = std::size_t{16} << 10;
  std::size_t max_body_bytes = std::size_t{4} << 20;
  std::size_t max_bodies_bytes = std::size_t{256} << 20;  // of all requests that are being read
  std::size_t max_unsent_bytes = std::size_t{8} << 20;    // of an answer that nobody reads
  std::size_t max_connections = 4096;
  double head_s = 10;   // from the first byte of a request to the end of its headers
  double body_s = 60;   // from there to the end of its body
  double idle_s = 75;   // between requests
  double write_s = 60;  // the longest in which a peer takes nothing of an answer
};

/// What a server does with requests. Both are called in its threads, several at the same time.
struct HttpHandlers {
  /// An answer in place of reading the body; the connection is closed after it.
  std::function<std::optional<HttpAnswer>(const HttpHead& head)> refuse;
  std::function<void(HttpRequest request, std::shared_ptr<HttpReply> reply)> handle;
  /// The body of an answer to what is no request: 400, 408, 413, 500, 503.
  std::function<std::string(int status, std::string_view message)> error_body;
};

/// An HTTP/1.1 server (RFC 9112) for requests with small bodies and answers that may be long in
/// coming. Asynchronous: a connection costs memory, not a thread. Where max_connections are open, a new
/// one takes the place of the one that has waited longest without a request.
///
/// Refused as 400: two lengths, a length beside Transfer-Encoding, other codings than chunked, no or
/// several Host, a target that is no path.
class HttpServer {
 public:
  /// Listens; nothing is answered before start(). Must outlive all replies. Throws Error(usage) for a host that is no address of
  /// this machine, or a port that is taken or not allowed.
  HttpServer(const HttpConfig& config, HttpHandlers handlers);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  /// As stop().
  ~HttpServer();

  [[nodiscard]] std::uint16_t port() const;
  /// Nobody but this machine can connect.
  [[nodiscard]] bool is_loopback() const;

  void start();
  /// Closes all connections, finished or not, and ends the threads.
  void stop();

  [[nodiscard]] std::size_t num_connections() const;
  /// Requests that were handed over and whose answers are not out.
  [[nodiscard]] std::size_t num_answering() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
