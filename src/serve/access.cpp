#include "serve/access.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "http/loopback.hpp"

namespace trireme::serve {
namespace {

constexpr std::string_view kAnyOrigin = "*";

/// Compares two texts in a time that depends only on their length, so that the response time does
/// not reveal the token.
bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

bool is_own_origin(std::string_view origin, std::string_view host) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme) && http::same_ignoring_case(origin.substr(scheme.size()), host))
      return true;
  }
  return false;
}

bool has_token(const http::HttpHead& head, std::string_view token) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!head.authorization) return false;
  const std::string_view given = *head.authorization;
  return given.size() > kScheme.size() &&
         http::same_ignoring_case(given.substr(0, kScheme.size()), kScheme) &&
         same_secret(given.substr(kScheme.size()), token);
}

/// Returns true if the request comes from a page of another origin in cors_origins.
bool is_cors_request(const AccessRules& rules, const http::HttpHead& head) {
  const auto allows = [&](const std::string& origin) {
    return origin == kAnyOrigin || http::same_ignoring_case(origin, *head.origin);
  };
  return head.origin && std::any_of(rules.cors_origins.begin(), rules.cors_origins.end(), allows);
}

/// Returns true for SCHEME://HOST[:PORT].
bool is_origin(std::string_view text) {
  const std::size_t scheme_end = text.find("://");
  if (scheme_end == std::string_view::npos || scheme_end == 0) return false;
  const std::string_view host = text.substr(scheme_end + 3);
  const auto is_plain = [](char c) { return c > ' ' && c < 127; };
  return !host.empty() && std::all_of(text.begin(), text.end(), is_plain) &&
         host.find_first_of("/?#@*,") == std::string_view::npos;
}

}  // namespace

void check_cors_origins(const std::vector<std::string>& origins) {
  for (const std::string& origin : origins) {
    if (origin == kAnyOrigin || is_origin(origin)) continue;
    fail(ErrorKind::usage,
         "--cors-origin {} is not an origin. Give * or SCHEME://HOST[:PORT] without a path, for "
         "example https://app.example:8443",
         origin);
  }
}

http::HttpHeaders cors_headers(const AccessRules& rules, const http::HttpHead& head) {
  const std::vector<std::string>& origins = rules.cors_origins;
  if (origins.empty()) return {};
  if (std::find(origins.begin(), origins.end(), kAnyOrigin) != origins.end())
    return {{"Access-Control-Allow-Origin", std::string(kAnyOrigin)}};
  // The response depends on the origin, so a cache must not give it to another one.
  if (!is_cors_request(rules, head)) return {{"Vary", "Origin"}};
  return {{"Vary", "Origin"}, {"Access-Control-Allow-Origin", *head.origin}};
}

bool is_allowed_preflight(const AccessRules& rules, const http::HttpHead& head) {
  return head.method == "OPTIONS" && head.wanted_method && is_cors_request(rules, head);
}

http::HttpResponse preflight_answer(const http::HttpHead& head) {
  http::HttpResponse answer{.content_type = "text/plain"};
  answer.headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                    {"Access-Control-Max-Age", "600"}};
  if (head.wanted_headers)
    answer.headers.emplace_back("Access-Control-Allow-Headers", *head.wanted_headers);
  return answer;
}

std::optional<ApiError> find_access_problem(const AccessRules& rules, const http::HttpHead& head,
                                            bool needs_token) {
  if (rules.is_loopback && head.host && !http::is_loopback_host(*head.host)) {
    return ApiError(
        403, formatted("Host {} is not allowed. Use localhost, 127.0.0.1 or [::1].", *head.host),
        "", "host_not_allowed");
  }
  const bool is_cors = is_cors_request(rules, head);
  if (head.origin && !is_cors && !is_own_origin(*head.origin, head.host.value_or("")))
    return ApiError(
        403,
        formatted("Origin {} is not allowed. Use the address of this server, or start the server "
                  "with --cors-origin.",
                  *head.origin),
        "", "origin_not_allowed");
  if (needs_token && !is_cors && head.fetch_site && *head.fetch_site == "cross-site")
    return ApiError(403, "Requests from other web sites are not allowed.", "",
                    "origin_not_allowed");
  if (needs_token && !rules.token.empty() && !has_token(head, rules.token)) {
    return ApiError(401, "a token is needed: Authorization: Bearer TOKEN", "", "invalid_api_key");
  }
  return std::nullopt;
}

}  // namespace trireme::serve
