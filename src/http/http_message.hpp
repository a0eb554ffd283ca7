#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

/// A request line and the headers that anybody here looks at.
struct HttpHead {
  std::string method = {};  // "GET"
  std::string path = {};    // "/v1/models": before any '?', not decoded
  std::string query = {};   // after it
  std::optional<std::string> host = {};
  std::optional<std::string> origin = {};
  std::optional<std::string> fetch_site = {};  // Sec-Fetch-Site
  std::optional<std::string> authorization = {};
};

struct HttpRequest {
  HttpHead head;
  std::string body;
};

struct HttpAnswer {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};

/// Where one request is answered: by one `answer`, or by begin_events, any number of `write` and
/// `end`. May be called from any thread, also after the peer has gone; returns at once. One that is
/// destroyed without an answer answers 500.
class HttpReply {
 public:
  virtual ~HttpReply() = default;

  virtual void answer(HttpAnswer answer) = 0;
  /// 200 and Server-Sent Events.
  virtual void begin_events() = 0;
  virtual void write(std::string text) = 0;
  virtual void end() = 0;

  /// Calls `task` in a thread of the server. All tasks of a request, `gone` and `late` among them, come
  /// one after another, and after the handler has returned.
  virtual void post(std::function<void()> task) = 0;
  /// Calls `gone`, once, if the peer goes away before the whole answer was given.
  virtual void on_gone(std::function<void()> gone) = 0;
  /// Calls `late` once `seconds` have passed, unless the whole answer was given.
  virtual void on_late(double seconds, std::function<void()> late) = 0;
};

}  // namespace trireme
