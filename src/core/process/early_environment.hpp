#pragma once
#include <string_view>

namespace trireme {

/// Returns the value of `name` in an environment from the loader (NAME=VALUE, terminated by a null
/// pointer); null if not set. Safe before main(), when the C library has no environment yet.
inline const char* value_in(const char* const* environment, std::string_view name) noexcept {
  for (const char* const* entry = environment; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (text.size() > name.size() && text.starts_with(name) && text[name.size()] == '=')
      return *entry + name.size() + 1;
  }
  return nullptr;
}

}  // namespace trireme
