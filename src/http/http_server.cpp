#include "http/http_server.hpp"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "core/log.hpp"
#include "http/connection.hpp"

namespace trireme::http {

namespace asio = boost::asio;
using AcceptError = boost::system::error_code;

struct HttpServer::Impl {
  explicit Impl(const HttpConfig& config, HttpHandlers handlers);

  void accept_next();
  void add(HttpConnection::Socket socket);
  /// Closes the connection that has waited longest for a request. The caller holds `mutex`.
  void reserve_descriptors();

  std::shared_ptr<HttpShared> shared;
  asio::io_context context;
  // The strand also runs `retry`, so the two never run at the same time.
  asio::ip::tcp::acceptor acceptor{asio::make_strand(context)};
  asio::steady_timer retry{acceptor.get_executor()};
  asio::ip::tcp::endpoint endpoint;
  std::vector<std::thread> threads;
  mutable std::mutex mutex;
  std::list<std::weak_ptr<HttpConnection>> connections;
  bool stopping = false;
};

HttpServer::Impl::Impl(const HttpConfig& config, HttpHandlers handlers)
    : shared(std::make_shared<HttpShared>()), context(config.num_threads) {
  shared->config = config;
  shared->handlers = std::move(handlers);
  AcceptError error;
  asio::ip::tcp::resolver resolver(context);
  const auto found = resolver.resolve(config.host, std::to_string(config.port),
                                      asio::ip::tcp::resolver::passive, error);
  if (error || found.empty()) {
    fail(ErrorKind::usage, "{} is not an address or a name of this machine: {}; change {}",
         config.host, error.message(), config.options);
  }
  endpoint = found.begin()->endpoint();
  const auto check = [&](const char* what) {
    if (!error) return;
    fail(ErrorKind::usage, "cannot {} {} port {}: {}; choose another {} (port 0: any free port)",
         what, config.host, config.port, error.message(), config.options);
  };
  acceptor.open(endpoint.protocol(), error);
  check("open");
  acceptor.set_option(asio::socket_base::reuse_address(true), error);
  acceptor.bind(endpoint, error);
  check("take");
  acceptor.listen(asio::socket_base::max_listen_connections, error);
  check("listen on");
  endpoint = acceptor.local_endpoint();
}

void HttpServer::Impl::accept_next() {
  acceptor.async_accept(asio::make_strand(context),
                        [this](AcceptError error, HttpConnection::Socket socket) {
                          if (error == asio::error::operation_aborted) return;
                          if (!error) {
                            add(std::move(socket));
                            return accept_next();
                          }
                          {  // no free file descriptors: close a connection and retry soon
                            const std::lock_guard lock(mutex);
                            reserve_descriptors();
                          }
                          retry.expires_after(std::chrono::milliseconds(50));
                          retry.async_wait([this](AcceptError late) {
                            if (!late) accept_next();
                          });
                        });
}

void HttpServer::Impl::add(HttpConnection::Socket socket) {
  const auto connection = std::make_shared<HttpConnection>(std::move(socket), shared);
  const std::lock_guard lock(mutex);
  if (stopping) return;
  connections.remove_if([](const auto& each) { return each.expired(); });
  if (connections.size() >= shared->config.max_connections) reserve_descriptors();
  connections.push_back(connection);
  connection->start();
}

void HttpServer::Impl::reserve_descriptors() {
  std::shared_ptr<HttpConnection> longest;
  for (const auto& each : connections) {
    const auto connection = each.lock();
    const auto since = connection ? connection->waits_since() : std::nullopt;
    if (since &&
        (!longest || *since < longest->waits_since().value_or(HttpConnection::Clock::now())))
      longest = connection;
  }
  if (longest) longest->close_soon();
}

HttpServer::HttpServer(const HttpConfig& config, HttpHandlers handlers)
    : impl_(std::make_unique<Impl>(config, std::move(handlers))) {}

HttpServer::~HttpServer() {
  stop();
}

std::uint16_t HttpServer::port() const {
  return impl_->endpoint.port();
}

bool HttpServer::is_loopback() const {
  return impl_->endpoint.address().is_loopback();
}

void HttpServer::start() {
  impl_->accept_next();
  for (int i = 0; i < impl_->shared->config.num_threads; ++i) {
    impl_->threads.emplace_back([context = &impl_->context] {
      while (true) {
        try {
          context->run();
          return;
          // The error belongs to one connection. The other connections continue.
        } catch (const std::exception& error) {
          log::error(formatted("HTTP server: a connection failed: {}", error.what()));
        }
      }
    });
  }
}

void HttpServer::stop() {
  if (impl_->threads.empty()) return;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    for (const auto& each : impl_->connections) {
      if (const auto connection = each.lock()) connection->close_soon();
    }
  }
  asio::post(impl_->acceptor.get_executor(), [this] {
    AcceptError ignored;
    impl_->acceptor.close(ignored);
    impl_->retry.cancel();
  });
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->threads.clear();
}

std::size_t HttpServer::num_connections() const {
  const std::lock_guard lock(impl_->mutex);
  return static_cast<std::size_t>(std::count_if(impl_->connections.begin(),
                                                impl_->connections.end(),
                                                [](const auto& each) { return !each.expired(); }));
}

std::size_t HttpServer::num_answering() const {
  return impl_->shared->num_answering;
}

}  // namespace trireme::http
