#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "generate/request.hpp"

namespace trireme {

/// What a chat may change between two answers.
struct ChatSettings {
  SamplingConfig sampling;
  std::int64_t max_tokens = 1024;
  std::optional<bool> thinking;  // none: as the chat format has it
  bool show_thoughts = false;    // false: folded into one line

  /// Throws Error(usage) for a value that is not possible.
  void check() const;

  /// "temperature 0.7", ..: a line each.
  [[nodiscard]] std::string text() const;

  /// Sets one by name. Throws Error(usage) for an unknown name (with the nearest) or a value that is
  /// not possible; nothing has changed then.
  void set(std::string_view name, std::string_view value);
};

/// "auto", "on" or "off". Throws Error(usage).
std::optional<bool> read_thinking(std::string_view value);

}  // namespace trireme
