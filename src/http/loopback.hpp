#pragma once
#include <string_view>

namespace trireme::http {

/// Returns true for "localhost", "127.0.0.1", "[::1]" and other loopback addresses, with or without
/// port. A server that only this machine can reach must refuse other Host headers: otherwise a page
/// in a browser on this machine could let its own host name resolve to the address of the server.
bool is_loopback_host(std::string_view host);

/// Compares names of hosts, schemes and headers.
bool same_ignoring_case(std::string_view a, std::string_view b);

}  // namespace trireme::http
