#include "serve/service.hpp"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "serve/openai/api_error.hpp"
#include "serve/openai/body_fields.hpp"
#include "serve/page_files.hpp"

namespace trireme::serve {
namespace {

Json model_json(const ServedModel& model) {
  const generate::SamplingConfig sampling = GenerationFields().sampling;
  return {
      {"id", model.facts().name},
      {"object", "model"},
      {"created", model.facts().created},
      {"owned_by", "trireme"},
      {"max_model_len", model.facts().max_context},
      {"meta",
       {{"n_ctx", model.facts().max_context},
        {"n_vocab", model.facts().vocab_size},
        {"chat_template", model.facts().chat == nullptr ? Json() : Json(model.facts().chat->name)},
        {"sampling",
         {{"temperature", sampling.temperature},
          {"top_p", sampling.top_p},
          {"top_k", sampling.top_k},
          {"min_p", sampling.min_p},
          {"repetition_penalty", sampling.repetition_penalty},
          {"presence_penalty", sampling.presence_penalty},
          {"frequency_penalty", sampling.frequency_penalty}}}}}};
}

/// Returns the bytes as text, or as numbers if they are not valid UTF-8.
Json piece_json(std::string_view bytes) {
  std::string text(bytes);
  try {
    (void)Json(text).dump();
    return text;
  } catch (const Json::exception&) {
    Json numbers = Json::array();
    for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
    return numbers;
  }
}

/// Throws ApiError(404) unless `name` (of a request) is the name of the model or empty.
void check_model_name(const ServedModel& model, std::string_view name) {
  if (name.empty() || name == model.facts().name) return;
  throw ApiError(404, formatted("There is no model '{}'. Use '{}'.", name, model.facts().name),
                 "model", "model_not_found");
}

/// Returns the response of /v1/models.
std::string models_text(const ServedModel& model, std::string_view) {
  return json_text({{"object", "list"}, {"data", Json::array({model_json(model)})}});
}

/// Returns the response of /v1/models/NAME. Throws ApiError(404) for another name.
std::string one_model_text(const ServedModel& model, std::string_view name) {
  check_model_name(model, name);
  return json_text(model_json(model));
}

/// Returns the response of /tokenize, as in llama.cpp's server. The body is {"content",
/// "add_special": false, "parse_special": true, "with_pieces": false}. The response is {"tokens":
/// [...]} with one id for each token, or one {"id", "piece"} if with_pieces is true.
std::string tokenize_text(const ServedModel& model, std::string_view body) {
  const Json parsed = parse_body(body);
  const BodyFields fields(parsed);
  const auto content = fields.text("content");
  if (!content) refuse_field("content", "content is missing");
  model.require_tokenizer("content");
  const text::EncodeOptions options{
      .add_special_tokens = fields.boolean("add_special").value_or(false),
      .match_added_tokens = fields.boolean("parse_special").value_or(true)};
  const bool with_pieces = fields.boolean("with_pieces").value_or(false);
  check_model_name(model, fields.text("model").value_or(""));
  fields.refuse_unknown();
  Json tokens = Json::array();
  for (const std::uint32_t id : model.tokenizer().encode(*content, options)) {
    if (with_pieces) {
      tokens.push_back({{"id", id}, {"piece", piece_json(model.tokenizer().token_bytes(id))}});
    } else {
      tokens.push_back(id);
    }
  }
  return json_text({{"tokens", std::move(tokens)}});
}

/// Returns the response of /detokenize: {"tokens"} -> {"content"}. If the model has an id but the
/// tokenizer has no token for it, the id adds no text.
std::string detokenize_text(const ServedModel& model, std::string_view body) {
  const Json parsed = parse_body(body);
  const BodyFields fields(parsed);
  const Json* tokens = fields.find("tokens");
  if (tokens == nullptr || !tokens->is_array()) fields.refuse("tokens", "a list of token ids");
  check_model_name(model, fields.text("model").value_or(""));
  fields.refuse_unknown();
  const auto num_ids = static_cast<std::uint64_t>(model.facts().vocab_size);
  std::vector<std::uint32_t> ids;
  for (const Json& token : *tokens) {
    const bool is_known = token.is_number_unsigned() && token.get<std::uint64_t>() < num_ids;
    if (!is_known) refuse_field("tokens", formatted("tokens must be integers in [0, {})", num_ids));
    ids.push_back(token.get<std::uint32_t>());
  }
  return json_text({{"content", model.tokenizer().decode(ids)}});
}

/// Returns the prompt of a request to /v1/chat/completions.
std::string apply_template_text(const ServedModel& model, std::string_view body) {
  return json_text({{"prompt", model.write(read_chat_request(body).input).text}});
}

/// Decodes %20 and similar codes in a part of a path. Invalid codes stay unchanged. Source: RFC
/// 3986, section 2.1.
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

/// A request that needs the model.
struct ServiceCall {
  const JobContext& context;
  const http::HttpRequest& request;
  const std::shared_ptr<http::HttpReply>& reply;
};

struct Route {
  const char* method;
  std::string_view path;  // a path that ends in '/' also matches longer paths
  void (*handle)(const ServiceCall& call);
};

/// Responds with the result of `make` for the request's body.
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

void answer_embedding(const ServiceCall& call) {
  const EmbeddingRequest request = read_embedding_request(call.request.body);
  check_model_name(call.context.model, request.model);
  run_embedding(call.context, call.reply, request);
}

void answer_response(const ServiceCall& call) {
  const ResponseRequest request = read_response_request(call.request.body);
  check_model_name(call.context.model, request.chat.fields.model);
  run_response(call.context, call.reply, request);
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
      {"POST", "/v1/embeddings", answer_embedding},
      {"POST", "/v1/responses", answer_response},
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

/// Returns the file of the page with this path; null if there is none. Only exact paths match, and
/// nothing is read from disk.
const PageFile* find_page_file(std::string_view path) {
  const std::span<const PageFile> files = page_files();
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const PageFile& file) { return file.path == path; });
  return found == files.end() ? nullptr : &*found;
}

/// Returns the file with headers that allow the page to load only its own files.
http::HttpResponse page_answer(const PageFile& file) {
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

http::HttpHeaders Service::common_headers(const http::HttpHead& head) const {
  return cors_headers(config_.access, head);
}

std::optional<ApiError> Service::find_problem(const http::HttpHead& head) const {
  if (is_allowed_preflight(config_.access, head))
    return find_access_problem(config_.access, head, false);
  const Route* route = find_route(head.path);
  const bool is_page = find_page_file(head.path) != nullptr;
  const bool is_public = is_page || head.path == kHealthPath;
  if (auto problem = find_access_problem(config_.access, head, !is_public)) return problem;
  if (route == nullptr && !is_public)
    return ApiError(404, formatted("There is no path {}.", head.path), "", "not_found");
  const char* method = is_public ? "GET" : route->method;
  if (!takes(method, head.method)) {
    return ApiError(405,
                    formatted("{} is not allowed for {}. Use {}.", head.method, head.path, method),
                    "", "method_not_allowed");
  }
  if (is_page) return std::nullopt;
  if (is_draining_)
    return ApiError(503, "The server is shutting down and accepts no new requests.", "",
                    "draining");
  if (model_.load() == nullptr)
    return ApiError(503, "The server is still loading the model. Try again later.", "", "loading");
  return std::nullopt;
}

std::optional<http::HttpResponse> Service::refuse(const http::HttpHead& head) const {
  const auto problem = find_problem(head);
  if (!problem) return std::nullopt;
  http::HttpResponse answer = error_answer(*problem);
  if (problem->status() == 405) {
    const Route* route = find_route(head.path);
    const bool gets = route == nullptr || std::string_view(route->method) == "GET";
    answer.headers.emplace_back("Allow", gets ? "GET, HEAD" : "POST");
  }
  return answer;
}

void Service::handle(http::HttpRequest request, const std::shared_ptr<http::HttpReply>& reply) {
  try {
    if (is_allowed_preflight(config_.access, request.head))
      return reply->answer(preflight_answer(request.head));
    if (const PageFile* file = find_page_file(request.head.path))
      return reply->answer(page_answer(*file));
    if (request.head.path == kHealthPath)
      return reply->answer({.body = json_text({{"status", "ok"}})});
    const ServedModel* model = model_.load();
    const Route* route = find_route(request.head.path);
    TRIREME_ASSERT(model != nullptr && route != nullptr);  // checked by refuse()
    const JobContext context{*model, metrics_, config_.request_timeout_s};
    route->handle({context, request, reply});
  } catch (...) {
    reply->answer(error_answer(current_api_error()));
  }
}

}  // namespace trireme::serve
