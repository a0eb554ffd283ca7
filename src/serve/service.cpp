#include "serve/service.hpp"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "serve/page_files.hpp"
#include "serve/text_routes.hpp"

namespace trireme {
namespace {

/// Returns a part of a path with the bytes that %20 and the like stand for. Other text stays.
/// Source: RFC 3986, section 2.1.
std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char* const digits = text.data() + i + 1;
    unsigned char byte = 0;
    const bool is_coded = text[i] == '%' && text.size() - i > 2 &&
                          std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    decoded += is_coded ? static_cast<char>(byte) : text[i];
    if (is_coded) i += 2;
  }
  return decoded;
}

/// A request that needs a model, and what answers it.
struct ServiceCall {
  const JobContext& context;
  const HttpRequest& request;
  const std::shared_ptr<HttpReply>& reply;
};

struct Route {
  const char* method;
  std::string_view path;  // ending in '/': what follows is the rest of it
  void (*handle)(const ServiceCall& call);
};

/// Answers with what `make` returns of the request's body.
template <std::string (*make)(const ServedModel&, std::string_view)>
void answer_text(const ServiceCall& call) {
  call.reply->answer({.body = make(call.context.model, call.request.body)});
}

void answer_chat(const ServiceCall& call) {
  const ChatRequest request = read_chat_request(call.request.body);
  check_model_name(call.context.model, request.fields.model);
  run_chat(call.context, call.reply, request);
}

void answer_completion(const ServiceCall& call) {
  const CompletionRequest request = read_completion_request(call.request.body);
  check_model_name(call.context.model, request.fields.model);
  run_completion(call.context, call.reply, request);
}

void answer_metrics(const ServiceCall& call) {
  call.reply->answer(
      {.body = metrics_text(call.context.metrics, call.context.model.source().counters()),
       .content_type = "text/plain; version=0.0.4; charset=utf-8"});
}

constexpr std::string_view kModelPath = "/v1/models/";

void answer_model(const ServiceCall& call) {
  const std::string_view name = std::string_view(call.request.head.path).substr(kModelPath.size());
  call.reply->answer({.body = one_model_text(call.context.model, percent_decoded(name))});
}

const std::vector<Route>& routes() {
  static const std::vector<Route> table{
      {"POST", "/v1/chat/completions", answer_chat},
      {"POST", "/v1/completions", answer_completion},
      {"GET", "/v1/models", answer_text<models_text>},
      {"GET", kModelPath, answer_model},
      {"POST", "/tokenize", answer_text<tokenize_text>},
      {"POST", "/detokenize", answer_text<detokenize_text>},
      {"POST", "/apply-template", answer_text<apply_template_text>},
      {"GET", "/metrics", answer_metrics}};
  return table;
}

const Route* find_route(std::string_view path) {
  for (const Route& route : routes()) {
    const bool is_same = route.path.ends_with('/')
                             ? path.starts_with(route.path) && path.size() > route.path.size()
                             : path == route.path;
    if (is_same) return &route;
  }
  return nullptr;
}

bool takes(const char* method, const std::string& given) {
  return given == method || (given == "HEAD" && std::string_view(method) == "GET");
}

/// Returns null if the page has no such file. Exact paths only: nothing is read from a disk.
const PageFile* find_page_file(std::string_view path) {
  const std::span<const PageFile> files = page_files();
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const PageFile& file) { return file.path == path; });
  return found == files.end() ? nullptr : &*found;
}

/// Returns the file with the headers that keep a page from loading anything but itself.
HttpAnswer page_answer(const PageFile& file) {
  return {
      .body = std::string(file.content),
      .content_type = std::string(file.type),
      .headers = {{"Content-Security-Policy",
                   "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                   "img-src 'self' data:; base-uri 'none'; form-action 'none'; "
                   "frame-ancestors 'none'; require-trusted-types-for 'script'"},
                  {"Referrer-Policy", "no-referrer"},
                  {"Cross-Origin-Opener-Policy", "same-origin"},
                  {"Cache-Control", "no-cache"}}};
}

constexpr std::string_view kHealthPath = "/health";

}  // namespace

Service::Service(ServiceConfig config) : config_(std::move(config)) {}

Service::~Service() = default;

void Service::open(const ServedModel& model) {
  model_ = &model;
}

void Service::drain() {
  is_draining_ = true;
}

std::optional<ApiError> Service::find_problem(const HttpHead& head) const {
  const Route* route = find_route(head.path);
  const bool is_page = find_page_file(head.path) != nullptr;
  const bool is_public = is_page || head.path == kHealthPath;
  if (auto problem = find_access_problem(config_.access, head, !is_public)) return problem;
  if (route == nullptr && !is_public)
    return ApiError(404, formatted("there is no {}", head.path), "", "not_found");
  const char* method = is_public ? "GET" : route->method;
  if (!takes(method, head.method)) {
    return ApiError(
        405, formatted("{} is not allowed for {}, must be {}", head.method, head.path, method), "",
        "method_not_allowed");
  }
  if (is_page) return std::nullopt;
  if (is_draining_)
    return ApiError(503, "the server is ending: it takes no more requests", "", "draining");
  if (model_.load() == nullptr) return ApiError(503, "the model is being loaded", "", "loading");
  return std::nullopt;
}

std::optional<HttpAnswer> Service::refuse(const HttpHead& head) const {
  const auto problem = find_problem(head);
  if (!problem) return std::nullopt;
  HttpAnswer answer = error_answer(*problem);
  if (problem->status() == 405) {
    const Route* route = find_route(head.path);
    const bool gets = route == nullptr || std::string_view(route->method) == "GET";
    answer.headers.emplace_back("Allow", gets ? "GET, HEAD" : "POST");
  }
  return answer;
}

void Service::handle(HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
  try {
    if (const PageFile* file = find_page_file(request.head.path))
      return reply->answer(page_answer(*file));
    if (request.head.path == kHealthPath)
      return reply->answer({.body = json_text({{"status", "ok"}})});
    const ServedModel* model = model_.load();
    const Route* route = find_route(request.head.path);
    TRIREME_ASSERT(model != nullptr && route != nullptr);  // refuse() has looked
    const JobContext context{*model, metrics_, config_.request_timeout_s};
    route->handle({context, request, reply});
  } catch (...) {
    reply->answer(error_answer(current_api_error()));
  }
}

}  // namespace trireme
