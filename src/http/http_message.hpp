#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::http {

/// The request line and the headers that the server uses.
struct HttpHead {
  std::string method = {};  // "GET"
  std::string path = {};    // "/v1/models": the part before '?', not percent-decoded
  std::string query = {};   // the part after '?'
  std::optional<std::string> host = {};
  std::optional<std::string> origin = {};
  std::optional<std::string> fetch_site = {};  // Sec-Fetch-Site
  std::optional<std::string> authorization = {};
  // headers of a CORS preflight request
  std::optional<std::string> wanted_method = {};   // Access-Control-Request-Method
  std::optional<std::string> wanted_headers = {};  // Access-Control-Request-Headers
};

/// Names and values of headers.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  HttpHead head;
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  HttpHeaders headers = {};
};

/// The response to one request: either one call of `answer`, or begin_events, any number of `write`
/// and `end`. All functions may be called from any thread, also after the peer has closed the
/// connection, and return at once. If the object is destroyed without a response, the server
/// responds with status 500.
class HttpReply {
 public:
  virtual ~HttpReply() = default;

  virtual void answer(HttpResponse answer) = 0;
  /// Starts a response with status 200 and Server-Sent Events.
  virtual void begin_events() = 0;
  virtual void write(std::string text) = 0;
  virtual void end() = 0;

  /// Calls `task` in a thread of the server after the handler has returned. Tasks of one request,
  /// including `gone` and `late`, never run at the same time.
  virtual void post(std::function<void()> task) = 0;
  /// Calls `gone` once if the peer closes the connection before the response is complete.
  virtual void on_gone(std::function<void()> gone) = 0;
  /// Calls `late` after `seconds` unless the response is complete.
  virtual void on_late(double seconds, std::function<void()> late) = 0;
};

}  // namespace trireme::http
