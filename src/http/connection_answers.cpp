#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/status.hpp>
#include <cstdio>
#include <ctime>
#include <functional>
#include <utility>

#include "core/error.hpp"
#include "core/log.hpp"
#include "http/connection.hpp"

/// Moves responses from any thread into the strand of the connection and to the peer.
namespace trireme::http {
namespace {

namespace net = boost::asio;

constexpr double kLinger_s = 5;

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 40> text{};
  const std::size_t size =
      std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {text.data(), size};
}

class HttpConnectionReply final : public HttpReply {
 public:
  HttpConnectionReply(std::shared_ptr<HttpConnection> connection, std::uint64_t number)
      : connection_(std::move(connection)), number_(number) {}

  HttpConnectionReply(const HttpConnectionReply&) = delete;
  HttpConnectionReply& operator=(const HttpConnectionReply&) = delete;

  ~HttpConnectionReply() override { connection_->abandon(number_); }

  void answer(HttpResponse answer) override { connection_->answer(number_, std::move(answer)); }

  void begin_events() override { connection_->begin_events(number_); }

  void write(std::string text) override { connection_->write(number_, std::move(text)); }

  void end() override { connection_->end(number_); }

  void post(std::function<void()> task) override { connection_->post(std::move(task)); }

  void on_gone(std::function<void()> gone) override {
    connection_->on_gone(number_, std::move(gone));
  }

  void on_late(double seconds, std::function<void()> late) override {
    connection_->on_late(number_, seconds, std::move(late));
  }

 private:
  std::shared_ptr<HttpConnection> connection_;
  std::uint64_t number_;
};

}  // namespace

void HttpConnection::dispatch(HttpRequest request) {
  set_answering(true);
  watch_peer();
  const auto reply = std::make_shared<HttpConnectionReply>(shared_from_this(), number_);
  try {
    shared_->handlers.handle(std::move(request), reply);
  } catch (const std::exception& error) {
    log::error(formatted("a request failed: {}", error.what()));
  }
  give_back_body();
}

/// If the peer closes the connection while its response is made, the request is cancelled. Readable
/// bytes are the next request; in that case a later close cannot be seen without reading the bytes.
void HttpConnection::watch_peer() {
  socket_.async_wait(Socket::wait_read,
                     [self = shared_from_this(), number = number_](ErrorCode error) {
                       if (error || number != self->number_ || self->ended_ || self->closing_)
                         return;
                       char byte = 0;
                       ErrorCode problem;
                       self->socket_.non_blocking(true, problem);
                       self->socket_.receive(net::buffer(&byte, 1), Socket::message_peek, problem);
                       // The wait may end because of bytes that were read before it began.
                       if (problem == net::error::would_block || problem == net::error::try_again)
                         return self->watch_peer();
                       if (problem) self->close();
                     });
}

template <class Action>
void HttpConnection::in_strand(std::uint64_t number, Action action) {
  net::post(socket_.get_executor(),
            [self = shared_from_this(), number, action = std::move(action)]() mutable {
              if (number == self->number_ && !self->ended_) action(*self);
            });
}

void HttpConnection::on_gone(std::uint64_t number, std::function<void()> gone) {
  in_strand(number, [gone = std::move(gone)](HttpConnection& self) mutable {
    if (self.is_gone_) return gone();
    self.gone_ = std::move(gone);
  });
}

void HttpConnection::post(std::function<void()> task) {
  net::post(socket_.get_executor(),
            [self = shared_from_this(), task = std::move(task)] { task(); });
}

void HttpConnection::on_late(std::uint64_t number, double seconds, std::function<void()> late) {
  in_strand(number, [seconds, late = std::move(late)](HttpConnection& self) {
    if (self.is_gone_) return;
    self.set_deadline(self.answer_timer_, seconds, [late](HttpConnection& timed) {
      if (!timed.ended_) late();
    });
  });
}

std::string HttpConnection::head_of(const HttpResponse& answer,
                                    std::optional<std::size_t> size) const {
  const auto reason =
      boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(answer.status));
  std::string head =
      formatted("HTTP/1.1 {} {}\r\nDate: {}\r\nContent-Type: {}\r\n", answer.status,
                std::string_view(reason.data(), reason.size()), http_date(), answer.content_type);
  if (size) {
    head += formatted("Content-Length: {}\r\n", *size);
  } else if (chunked_) {
    head += "Transfer-Encoding: chunked\r\n";
  }
  head += "X-Content-Type-Options: nosniff\r\n";
  for (const HttpHeaders* headers : {&answer.headers, &common_headers_}) {
    for (const auto& [name, value] : *headers) head += formatted("{}: {}\r\n", name, value);
  }
  head += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

void HttpConnection::answer(std::uint64_t number, HttpResponse answer) {
  in_strand(number, [answer = std::move(answer)](HttpConnection& self) {
    if (self.begun_ || self.is_gone_) return;
    self.begun_ = true;
    self.ended_ = true;
    self.send(self.head_of(answer, answer.body.size()) + (self.head_only_ ? "" : answer.body));
  });
}

void HttpConnection::begin_events(std::uint64_t number) {
  in_strand(number, [](HttpConnection& self) {
    if (self.begun_ || self.is_gone_) return;
    self.begun_ = true;
    self.keep_alive_ = self.keep_alive_ && self.chunked_;
    HttpResponse events;
    events.content_type = "text/event-stream; charset=utf-8";
    events.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    self.send(self.head_of(events, std::nullopt));
  });
}

void HttpConnection::write(std::uint64_t number, std::string text) {
  in_strand(number, [text = std::move(text)](HttpConnection& self) mutable {
    if (!self.begun_ || self.is_gone_ || text.empty()) return;
    if (self.chunked_) {
      std::array<char, 20> size{};
      const int length = std::snprintf(size.data(), size.size(), "%zx\r\n", text.size());
      text.insert(0, size.data(), static_cast<std::size_t>(length));
      text += "\r\n";
    }
    self.send(std::move(text));
  });
}

void HttpConnection::end(std::uint64_t number) {
  in_strand(number, [](HttpConnection& self) {
    if (!self.begun_ || self.is_gone_) return;
    self.ended_ = true;
    if (self.chunked_) self.send("0\r\n\r\n");
    if (!self.writing_) self.finish_answer();
  });
}

void HttpConnection::abandon(std::uint64_t number) {
  in_strand(number, [](HttpConnection& self) {
    if (self.is_gone_) return;
    if (self.begun_) return self.close();
    self.refuse(500, "the server did not answer the request");
  });
}

void HttpConnection::refuse(int status, std::string_view message) {
  HttpResponse answer{.status = status, .body = shared_->handlers.error_body(status, message)};
  if (status == 503) answer.headers = {{"Retry-After", "1"}};
  refuse(std::move(answer));
}

void HttpConnection::refuse(HttpResponse answer) {
  clear_deadline(read_timer_);
  give_back_body();
  keep_alive_ = false;
  closing_ = true;
  begun_ = ended_ = true;
  send(head_of(answer, answer.body.size()) + (head_only_ ? "" : answer.body));
}

void HttpConnection::send(std::string bytes) {
  if (is_gone_) return;
  unsent_bytes_ += bytes.size();
  largest_piece_bytes_ = std::max(largest_piece_bytes_, bytes.size());
  outbox_.push_back(std::move(bytes));
  if (unsent_bytes_ > shared_->config.max_unsent_bytes + largest_piece_bytes_) return close();
  if (!writing_) write_next();
}

void HttpConnection::write_next() {
  writing_ = true;
  set_deadline(write_timer_, shared_->config.write_s, &HttpConnection::close);
  const auto rest = net::buffer(outbox_.front()) + sent_of_front_;
  socket_.async_write_some(rest, [self = shared_from_this()](ErrorCode error, std::size_t count) {
    self->writing_ = false;
    self->clear_deadline(self->write_timer_);
    if (error) return self->close();
    self->unsent_bytes_ -= count;
    self->sent_of_front_ += count;
    if (self->sent_of_front_ == self->outbox_.front().size()) {
      self->outbox_.pop_front();
      self->sent_of_front_ = 0;
    }
    if (!self->outbox_.empty()) return self->write_next();
    if (self->ended_) self->finish_answer();
  });
}

void HttpConnection::finish_answer() {
  if (is_gone_) return;
  clear_deadline(answer_timer_);
  set_answering(false);
  gone_ = nullptr;
  if (!keep_alive_) return linger();
  if (closing_) return close();
  set_deadline(read_timer_, shared_->config.idle_s, &HttpConnection::on_read_deadline);
  read_head();
}

/// Closes the sending side and reads until the peer closes. If the socket were closed at once, the
/// operating system could discard a response that the peer has not read yet.
void HttpConnection::linger() {
  closing_ = true;
  ErrorCode ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  set_deadline(read_timer_, kLinger_s, &HttpConnection::close);

  struct Discard {
    std::shared_ptr<HttpConnection> self;
    std::shared_ptr<std::array<char, 16384>> sink = std::make_shared<std::array<char, 16384>>();

    void operator()(ErrorCode error, std::size_t = 0) {
      if (error || !self->socket_.is_open()) return self->close();
      self->socket_.async_receive(net::buffer(*sink), Discard(*this));
    }
  };

  Discard{shared_from_this()}(ErrorCode());
}

void HttpConnection::give_back_body() {
  shared_->bodies_bytes -= std::exchange(body_reserved_, 0);
}

void HttpConnection::set_answering(bool is_answering) {
  if (std::exchange(is_answering_, is_answering) != is_answering)
    shared_->num_answering += is_answering ? 1 : std::size_t(-1);
}

void HttpConnection::close() {
  closing_ = true;
  set_answering(false);
  clear_deadline(read_timer_);
  clear_deadline(write_timer_);
  clear_deadline(answer_timer_);
  ErrorCode ignored;
  socket_.close(ignored);
  const bool left_early = !std::exchange(is_gone_, true) && !ended_;
  const std::function<void()> gone = std::exchange(gone_, nullptr);
  if (gone && left_early) gone();
}

}  // namespace trireme::http
