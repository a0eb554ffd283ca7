#include "serve/access.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "http/loopback.hpp"

namespace trireme::serve {
namespace {

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

}  // namespace

std::optional<ApiError> find_access_problem(const AccessRules& rules, const http::HttpHead& head,
                                            bool needs_token) {
  if (rules.is_loopback && head.host && !http::is_loopback_host(*head.host)) {
    return ApiError(
        403, formatted("Host {} is not allowed. Use localhost, 127.0.0.1 or [::1].", *head.host),
        "", "host_not_allowed");
  }
  if (head.origin && !is_own_origin(*head.origin, head.host.value_or("")))
    return ApiError(
        403, formatted("Origin {} is not allowed. Use the address of this server.", *head.origin),
        "", "origin_not_allowed");
  if (needs_token && head.fetch_site && *head.fetch_site == "cross-site")
    return ApiError(403, "Requests from other web sites are not allowed.", "",
                    "origin_not_allowed");
  if (needs_token && !rules.token.empty() && !has_token(head, rules.token)) {
    return ApiError(401, "a token is needed: Authorization: Bearer TOKEN", "", "invalid_api_key");
  }
  return std::nullopt;
}

}  // namespace trireme::serve
