#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "http/http_message.hpp"

namespace trireme::http {

struct HttpConfig {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;                    // 0 selects any free port
  std::string options = "--host or --port";  // options that set host and port, for errors
  int num_threads = 2;
  std::size_t max_head_bytes = std::size_t{16} << 10;
  std::size_t max_body_bytes = std::size_t{4} << 20;
  std::size_t max_bodies_bytes = std::size_t{256} << 20;  // total of requests being read
  // unsent part of a response besides its largest piece
  std::size_t max_unsent_bytes = std::size_t{8} << 20;
  std::size_t max_connections = 4096;
  double head_s = 10;   // timeout for the headers, from the first byte of a request, in seconds
  double body_s = 60;   // timeout for the body after the headers, in seconds
  double idle_s = 75;   // timeout between two requests, in seconds
  double write_s = 60;  // timeout while the peer accepts no byte of a response, in seconds
};

/// Request handlers. The server calls them from its threads, several at the same time.
struct HttpHandlers {
  /// Returns a response if the request is refused before its body is read. The connection is then
  /// closed.
  std::function<std::optional<HttpResponse>(const HttpHead& head)> refuse;
  std::function<void(HttpRequest request, std::shared_ptr<HttpReply> reply)> handle;
  /// Returns the body of an error response of the server itself (status 400, 408, 413, 500 or 503).
  std::function<std::string(int status, std::string_view message)> error_body;
  /// Optional: returns headers that every response to this request has, errors included.
  std::function<HttpHeaders(const HttpHead& head)> common_headers = {};
};

/// An HTTP/1.1 server (RFC 9112) for requests with small bodies and responses that may take long.
/// It is asynchronous: a connection needs memory but no thread. If max_connections are open, a new
/// connection replaces the one that has waited longest for a request.
///
/// The server refuses these requests with status 400: two Content-Length headers, Content-Length
/// together with Transfer-Encoding, any coding except chunked, no Host or several, and a target
/// that is not a path.
class HttpServer {
 public:
  /// Opens the port. Requests are answered after start(). The server must outlive all replies.
  /// Throws Error(usage) if the host is not an address of this machine, or if the port is in use or
  /// not permitted.
  HttpServer(const HttpConfig& config, HttpHandlers handlers);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  [[nodiscard]] std::uint16_t port() const;
  /// Returns true if only this machine can connect.
  [[nodiscard]] bool is_loopback() const;

  void start();
  /// Closes all connections, also those with an unfinished response, and joins the threads.
  void stop();

  [[nodiscard]] std::size_t num_connections() const;
  /// Returns the number of requests that the handler has taken and that have no complete response.
  [[nodiscard]] std::size_t num_answering() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::http
