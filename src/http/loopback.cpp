#include "http/loopback.hpp"

#include <algorithm>

namespace trireme::http {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

}  // namespace

bool same_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

bool is_loopback_host(std::string_view host) {
  const std::string_view name = without_port(host);
  if (same_ignoring_case(name, "localhost") || name == "[::1]") return true;
  const bool is_address = std::all_of(name.begin(), name.end(),
                                      [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
  return is_address && name.starts_with("127.");
}

}  // namespace trireme::http
