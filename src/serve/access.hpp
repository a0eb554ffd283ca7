#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "http/http_message.hpp"
#include "serve/openai/api_error.hpp"

namespace trireme::serve {
struct AccessRules {
  std::string token;        // empty: no token is required
  bool is_loopback = true;  // only this machine (or a tunnel to it) can reach the server
};

/// Returns the reason why the request is refused, if there is one. Status 403: the request comes
/// from another web site. (A page in a browser on this machine could otherwise send requests to a
/// loopback server, or make its own host name resolve to the server.) Status 401: the token is
/// missing or wrong.
///   Host    on a loopback server, a loopback name or address; any port (tunnels change it)
///   Origin  if present, must be http:// or https:// and the same Host
std::optional<ApiError> find_access_problem(const AccessRules& rules, const http::HttpHead& head,
                                            bool needs_token);

/// Returns true for "localhost", "127.0.0.1", "[::1]" and other loopback addresses, with or without
/// port.
bool is_loopback_host(std::string_view host);

}  // namespace trireme::serve
