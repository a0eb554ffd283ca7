#include "http/connection.hpp"

#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <utility>

#include "core/error.hpp"

namespace trireme::http {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

std::string_view view_of(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

std::optional<std::string> header(const http::fields& fields, std::string_view name) {
  const auto found = fields.find({name.data(), name.size()});
  if (found == fields.end()) return std::nullopt;
  return std::string(view_of(found->value()));
}

HttpHead head_of_request(const http::request<http::string_body>& request) {
  HttpHead head;
  head.method = view_of(request.method_string());
  const std::string_view target = view_of(request.target());
  const std::size_t end = target.find('?');
  head.path = target.substr(0, end);
  if (end != std::string_view::npos) head.query = target.substr(end + 1);
  head.host = header(request, "Host");
  head.origin = header(request, "Origin");
  head.fetch_site = header(request, "Sec-Fetch-Site");
  head.authorization = header(request, "Authorization");
  head.wanted_method = header(request, "Access-Control-Request-Method");
  head.wanted_headers = header(request, "Access-Control-Request-Headers");
  return head;
}

/// Returns why the end or the target host of the request is ambiguous; null if both are clear.
const char* find_ambiguity(const http::request<http::string_body>& request) {
  const std::size_t lengths = request.count(http::field::content_length);
  const std::size_t codings = request.count(http::field::transfer_encoding);
  if (lengths > 1) return "more than one Content-Length";
  if (lengths > 0 && codings > 0) return "Content-Length beside Transfer-Encoding";
  const bool is_chunked =
      codings == 1 &&
      boost::beast::iequals(request.find(http::field::transfer_encoding)->value(), "chunked");
  if (codings > 0 && !is_chunked) return "Transfer-Encoding must be chunked";
  if (request.version() != 10 && request.version() != 11) return "must be HTTP/1.1";
  if (codings > 0 && request.version() != 11) return "Transfer-Encoding needs HTTP/1.1";
  const std::size_t hosts = request.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && request.version() == 11)) return "must have one Host";
  if (request.target().empty() || request.target().front() != '/')
    return "the target must be a path";
  return nullptr;
}

}  // namespace

HttpConnection::HttpConnection(Socket socket, std::shared_ptr<HttpShared> shared)
    : socket_(std::move(socket)),
      shared_(std::move(shared)),
      read_timer_(socket_.get_executor()),
      write_timer_(socket_.get_executor()),
      answer_timer_(socket_.get_executor()),
      buffer_(shared_->config.max_head_bytes + (std::size_t{64} << 10)),
      waits_since_(Clock::now().time_since_epoch().count()) {}

HttpConnection::~HttpConnection() {
  give_back_body();
}

std::optional<HttpConnection::Clock::time_point> HttpConnection::waits_since() const {
  const std::int64_t ticks = waits_since_.load();
  if (ticks < 0) return std::nullopt;
  return Clock::time_point(Clock::duration(ticks));
}

void HttpConnection::clear_deadline(net::steady_timer& timer) {
  // max() also stops a handler that is already queued, because it compares the expiry.
  timer.expires_at(Clock::time_point::max());
}

void HttpConnection::start() {
  net::post(socket_.get_executor(), [self = shared_from_this()] {
    ErrorCode ignored;
    self->socket_.set_option(net::ip::tcp::no_delay(true), ignored);
    self->set_deadline(self->read_timer_, self->shared_->config.head_s,
                       &HttpConnection::on_read_deadline);
    self->read_head();
  });
}

void HttpConnection::close_soon() {
  net::post(socket_.get_executor(), [self = shared_from_this()] { self->close(); });
}

// --- reading

void HttpConnection::on_read_deadline() {
  read_late_ = true;
  ErrorCode ignored;
  socket_.cancel(ignored);
}

/// Some clients send a line end after a body. RFC 9112, section 2.2, says to ignore it.
void HttpConnection::pass_over_line() {
  const auto here = buffer_.cdata();
  if (std::string_view(static_cast<const char*>(here.data()), here.size()).starts_with("\r\n"))
    buffer_.consume(2);
}

void HttpConnection::read_head() {
  waits_since_ = Clock::now().time_since_epoch().count();
  read_late_ = false;
  pass_over_line();
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(shared_->config.max_head_bytes));
  parser_->body_limit(shared_->config.max_body_bytes);
  http::async_read_header(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](ErrorCode error, std::size_t) { self->on_head(error); });
}

void HttpConnection::on_head(ErrorCode error) {
  waits_since_ = -1;
  if (closing_) return;
  const auto& request = parser_->get();
  // The length of the body is checked after all headers were read.
  const bool has_head = !error || error == http::error::body_limit;
  const HttpHead head = has_head ? head_of_request(request) : HttpHead();
  head_only_ = has_head && request.method() == http::verb::head;
  common_headers_.clear();
  if (has_head && shared_->handlers.common_headers)
    common_headers_ = shared_->handlers.common_headers(head);
  if (error) return on_read_error(error);
  ++number_;
  begun_ = ended_ = false;
  keep_alive_ = request.keep_alive();
  chunked_ = request.version() == 11;
  if (const char* problem = find_ambiguity(request)) return refuse(400, problem);
  if (auto answer = shared_->handlers.refuse(head)) return refuse(std::move(*answer));

  const auto length = parser_->content_length();
  body_reserved_ = length ? static_cast<std::size_t>(*length)
                          : (parser_->chunked() ? shared_->config.max_body_bytes : 0);
  if ((shared_->bodies_bytes += body_reserved_) > shared_->config.max_bodies_bytes)
    return refuse(503, "too many large requests at the same time: try again later");
  if (boost::beast::iequals(request[http::field::expect], "100-continue"))
    send(std::string(kContinue));
  read_body();
}

void HttpConnection::read_body() {
  set_deadline(read_timer_, shared_->config.body_s, &HttpConnection::on_read_deadline);
  http::async_read(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](ErrorCode error, std::size_t) { self->on_body(error); });
}

void HttpConnection::on_body(ErrorCode error) {
  if (closing_) return;
  if (error) return on_read_error(error);
  clear_deadline(read_timer_);
  HttpRequest request{head_of_request(parser_->get()), std::move(parser_->get().body())};
  parser_.reset();
  dispatch(std::move(request));
}

void HttpConnection::on_read_error(ErrorCode error) {
  const bool has_begun = parser_->is_header_done() || parser_->got_some() || buffer_.size() > 0;
  if (error == net::error::operation_aborted && read_late_ && has_begun)
    return refuse(408, "the request did not arrive in time: send it faster");
  if (error == http::error::body_limit) {
    return refuse(413, formatted("the body is larger than the limit of {} bytes",
                                 shared_->config.max_body_bytes));
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return refuse(400, formatted("the headers are larger than the limit of {} bytes",
                                 shared_->config.max_head_bytes));
  }
  const bool is_ours = error.category() == make_error_code(http::error::bad_method).category();
  if (is_ours && error != http::error::end_of_stream && error != http::error::partial_message)
    return refuse(400, formatted("the data is not an HTTP request: {}", error.message()));
  close();
}

}  // namespace trireme::http
