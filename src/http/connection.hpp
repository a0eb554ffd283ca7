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

/// Shared by the sources of this module, which are the only ones that include Boost.
namespace trireme {

/// What all connections of a server share.
struct HttpShared {
  HttpConfig config;
  HttpHandlers handlers;
  std::atomic<std::size_t> bodies_bytes = 0;
  std::atomic<std::size_t> num_answering = 0;
};

/// One connection, from accept to close: reads a request, hands it over, writes its answer, reads the
/// next. All but `waits_since` runs in the strand of its socket. It lives as long as an operation or a
/// reply holds it.
class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Clock = std::chrono::steady_clock;

  HttpConnection(Socket socket, std::shared_ptr<HttpShared> shared);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  /// Both from any thread.
  void start();
  void close_soon();

  /// Since when it waits for the head of a request; none: it has one. From any thread.
  [[nodiscard]] std::optional<Clock::time_point> waits_since() const;

  // Of the answer to request `number`; from any thread. Answers of earlier requests do nothing.
  void answer(std::uint64_t number, HttpAnswer answer);
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

  [[nodiscard]] std::string head_of(const HttpAnswer& answer,
                                    std::optional<std::size_t> size) const;
  /// Answers in place of a request, then closes.
  void refuse(HttpAnswer answer);
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
  std::atomic<std::int64_t> waits_since_;  // ticks; -1: has a request
  std::uint64_t number_ = 0;               // of the request that is answered
  std::size_t body_reserved_ = 0;
  bool head_only_ = false;
  bool keep_alive_ = false;
  bool chunked_ = false;
  bool read_late_ = false;  // a deadline has passed
  bool begun_ = false;      // the head of the answer is out
  bool ended_ = false;      // all of the answer is in outbox_
  bool is_answering_ = false;
  bool closing_ = false;  // nothing is read any more
  std::deque<std::string> outbox_;
  std::size_t sent_of_front_ = 0;
  std::size_t unsent_bytes_ = 0;
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

}  // namespace trireme
