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

/// Returns the error if the request must be refused; none if it is allowed. Status 403: the request
/// comes from another web site. (Otherwise a page in a browser on this machine could send requests
/// to a loopback server, or let its own host name resolve to the address of the server.) Status
/// 401: the token is missing or wrong.
///   Host    on a loopback server, must be a loopback name or address, with any port (tunnels
///           change the port)
///   Origin  if present, must be http:// or https:// and the same Host
std::optional<ApiError> find_access_problem(const AccessRules& rules, const http::HttpHead& head,
                                            bool needs_token);

}  // namespace trireme::serve
