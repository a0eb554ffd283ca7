#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "http/http_message.hpp"
#include "serve/openai/api_error.hpp"

namespace trireme {

/// Who may ask.
struct AccessRules {
  std::string token;        // "": none is needed
  bool is_loopback = true;  // the server is reached from this machine (or a tunnel to it) only
};

/// Why a request is not let in: 403 for another web site's (a page that a browser of this machine shows
/// could ask a loopback server, or have its own name point at one), 401 without the token where one is
/// needed.
///   Host    of a loopback server: a loopback name or address, any port (tunnels change it)
///   Origin  if there is one, http:// or https:// and the same Host
std::optional<ApiError> find_access_problem(const AccessRules& rules, const HttpHead& head,
                                            bool needs_token);

/// "localhost", "127.0.0.1", "[::1]" and other loopback addresses, with or without a port.
bool is_loopback_host(std::string_view host);

}  // namespace trireme
