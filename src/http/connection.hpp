#pragma once
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "http/http_server.hpp"

/// Used by the sources of this module only. No other source includes Boost.
namespace trireme::http {
struct HttpShared {
  HttpConfig config;
  HttpHandlers handlers;
  std::atomic<std::size_t> bodies_bytes = 0;
  std::atomic<std::size_t> num_answering = 0;
};

/// One TCP connection. It reads a request, calls the handler, writes the response and then reads
/// the next request. All functions except `waits_since` and the ones for any thread run in the Asio
/// strand of the socket. Pending operations and replies keep the connection alive.
class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Clock = std::chrono::steady_clock;

  HttpConnection(Socket socket, std::shared_ptr<HttpShared> shared);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  /// Both functions may be called from any thread.
  void start();
  void close_soon();

  /// Returns the time since which the connection waits for a request head; none while it has a
  /// request. May be called from any thread.
  [[nodiscard]] std::optional<Clock::time_point> waits_since() const;

  // Functions of the response to request `number`, for any thread. Calls for an earlier request do
  // nothing.
  void answer(std::uint64_t number, HttpResponse answer);
  void begin_events(std::uint64_t number);
  void write(std::uint64_t number, std::string text);
  void end(std::uint64_t number);
  void abandon(std::uint64_t number);
  void post(std::function<void()> task);
  void on_gone(std::uint64_t number, std::function<void()> gone);
  void on_late(std::uint64_t number, double seconds, std::function<void()> late);

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using ErrorCode = boost::system::error_code;

  template <class Action>
  void in_strand(std::uint64_t number, Action action);

  void read_head();
  void pass_over_line();
  void on_head(ErrorCode error);
  void read_body();
  void on_body(ErrorCode error);
  void on_read_error(ErrorCode error);
  void dispatch(HttpRequest request);
  void watch_peer();

  [[nodiscard]] std::string head_of(const HttpResponse& answer,
                                    std::optional<std::size_t> size) const;
  /// Responds without calling the handler, then closes the connection.
  void refuse(HttpResponse answer);
  void refuse(int status, std::string_view message);
  void send(std::string bytes);
  void write_next();
  void finish_answer();
  void linger();
  void close();

  template <class Action>
  void set_deadline(boost::asio::steady_timer& timer, double seconds, Action action);
  void clear_deadline(boost::asio::steady_timer& timer);
  void on_read_deadline();
  void give_back_body();
  void set_answering(bool is_answering);

  Socket socket_;
  std::shared_ptr<HttpShared> shared_;
  boost::asio::steady_timer read_timer_;
  boost::asio::steady_timer write_timer_;
  boost::asio::steady_timer answer_timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::atomic<std::int64_t> waits_since_;  // clock ticks; -1 while a request is processed
  std::uint64_t number_ = 0;               // number of the current request
  HttpHeaders common_headers_;             // every response to the current request has these
  std::size_t body_reserved_ = 0;
  bool head_only_ = false;
  bool keep_alive_ = false;
  bool chunked_ = false;
  bool read_late_ = false;  // the read deadline has passed
  bool begun_ = false;      // the response head was sent
  bool ended_ = false;      // the whole response is in outbox_
  bool is_answering_ = false;
  bool closing_ = false;  // no more data is read
  std::deque<std::string> outbox_;
  std::size_t sent_of_front_ = 0;
  std::size_t unsent_bytes_ = 0;
  std::size_t largest_piece_bytes_ = 0;  // the largest one so far
  bool writing_ = false;
  std::function<void()> gone_;
  bool is_gone_ = false;
};

template <class Action>
void HttpConnection::set_deadline(boost::asio::steady_timer& timer, double seconds, Action action) {
  timer.expires_after(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
  timer.async_wait(
      [self = shared_from_this(), &timer, action = std::move(action)](ErrorCode error) {
        if (!error && timer.expiry() <= Clock::now()) std::invoke(action, *self);
      });
}

}  // namespace trireme::http
