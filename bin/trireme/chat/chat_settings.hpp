#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "generate/request.hpp"

namespace trireme {

/// The settings that a user can change between two answers.
struct ChatSettings {
  generate::SamplingConfig sampling;
  std::int64_t max_tokens = 1024;
  std::optional<bool> thinking;  // none: default of the chat format
  bool show_thoughts = false;    // false: one summary line

  /// Throws Error(usage) if a value is invalid.
  void check() const;

  /// Returns one line for each setting, for example "temperature 0.7".
  [[nodiscard]] std::string text() const;

  /// Sets the setting `name`. Throws Error(usage) for an unknown name (with the nearest known name)
  /// or an invalid value; then nothing changes.
  void set(std::string_view name, std::string_view value);
};

/// Parses "auto" (none), "on" or "off". Throws Error(usage) for another text.
std::optional<bool> read_thinking(std::string_view value);

}  // namespace trireme
