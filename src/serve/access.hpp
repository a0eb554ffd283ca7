#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/http_message.hpp"
#include "serve/openai/api_error.hpp"

namespace trireme::serve {
struct AccessRules {
  std::string token = {};   // empty: no token is required
  bool is_loopback = true;  // only this machine (or a tunnel to it) can reach the server
  /// Origins of other web sites with pages that may send requests; "*" allows all origins.
  std::vector<std::string> cors_origins = {};
};

/// Throws Error(usage) unless every origin is "*" or SCHEME://HOST[:PORT] (for --cors-origin).
void check_cors_origins(const std::vector<std::string>& origins);

/// Returns the headers that let a browser give the response to the page of another origin. Empty
/// if no other origin is allowed. Source: WHATWG, "Fetch", section 3.3 (CORS protocol).
http::HttpHeaders cors_headers(const AccessRules& rules, const http::HttpHead& head);

/// Returns true for a CORS preflight request from an allowed origin.
bool is_allowed_preflight(const AccessRules& rules, const http::HttpHead& head);

/// Returns the response to an allowed preflight request. Browsers send no token in such a request.
http::HttpResponse preflight_answer(const http::HttpHead& head);

/// Returns the error if the request must be refused; none if it is allowed. Status 403: the request
/// comes from another web site. (Otherwise a page in a browser on this machine could send requests
/// to a loopback server, or let its own host name resolve to the address of the server.) Status
/// 401: the token is missing or wrong.
///   Host    on a loopback server, must be a loopback name or address, with any port (tunnels
///           change the port)
///   Origin  if present, must be http:// or https:// and the same Host, or in cors_origins
std::optional<ApiError> find_access_problem(const AccessRules& rules, const http::HttpHead& head,
                                            bool needs_token);

}  // namespace trireme::serve
