#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "http/http_message.hpp"
#include "serve/access.hpp"
#include "serve/jobs/answer_job.hpp"
#include "serve/serve_metrics.hpp"
#include "serve/served_model.hpp"

namespace trireme::serve {

struct ServiceConfig {
  AccessRules access = {};
  double request_timeout_s = 600;
};

/// Maps paths to handlers. The states are loading, ready and draining. In the states loading and
/// draining, the service answers only requests for the page and /health. Thread-safe.
class Service {
 public:
  explicit Service(ServiceConfig config);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service();

  /// Changes the state to ready. `model` must outlive all replies.
  void open(const ServedModel& model);
  /// Changes the state to draining: no new requests are accepted.
  void drain();

  /// The handlers of HttpHandlers.
  [[nodiscard]] std::optional<http::HttpResponse> refuse(const http::HttpHead& head) const;
  [[nodiscard]] http::HttpHeaders common_headers(const http::HttpHead& head) const;
  void handle(http::HttpRequest request, const std::shared_ptr<http::HttpReply>& reply);

 private:
  [[nodiscard]] std::optional<ApiError> find_problem(const http::HttpHead& head) const;

  ServiceConfig config_;
  std::atomic<const ServedModel*> model_ = nullptr;
  std::atomic<bool> is_draining_ = false;
  ServeMetrics metrics_;
};

}  // namespace trireme::serve
