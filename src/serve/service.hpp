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

namespace trireme {

struct ServiceConfig {
  AccessRules access = {};
  double request_timeout_s = 600;
};

/// What is answered under which path. Loading until a model is there, then ready, then draining: only
/// a ready one answers more than the page and /health. For any number of threads.
class Service {
 public:
  explicit Service(ServiceConfig config);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service();

  /// From now on requests are answered with it. It must outlive all replies.
  void open(const ServedModel& model);
  /// From now on no new requests are taken.
  void drain();

  /// The two functions of HttpHandlers.
  [[nodiscard]] std::optional<HttpAnswer> refuse(const HttpHead& head) const;
  void handle(HttpRequest request, const std::shared_ptr<HttpReply>& reply);

 private:
  [[nodiscard]] std::optional<ApiError> find_problem(const HttpHead& head) const;

  ServiceConfig config_;
  std::atomic<const ServedModel*> model_ = nullptr;
  std::atomic<bool> is_draining_ = false;
  ServeMetrics metrics_;
};

}  // namespace trireme
