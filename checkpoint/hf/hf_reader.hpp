#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/files/json.hpp"

namespace trireme::checkpoint {

/// Reads keys of a config.json and collects all unsupported settings, so that one error lists all
/// of them. Also collects the names of the keys that were read.
class HfReader {
 public:
  HfReader(const Json& config, std::string_view where) : config_(config), where_(where) {}

  std::int64_t size(const char* key, std::optional<std::int64_t> fallback = std::nullopt) {
    mark(key);
    const auto found = config_.find(key);
    if (found == config_.end() || found->is_null()) {
      if (!fallback) problem(key, " is missing");
      return fallback.value_or(0);
    }
    if (found->is_number_integer() && found->get<std::int64_t>() > 0)
      return found->get<std::int64_t>();
    problem(key, formatted(" = {}, must be a positive integer", found->dump()));
    return 0;
  }

  double number(const Json& object, const char* key, double fallback) {
    if (&object == &config_) mark(key);
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return fallback;
    if (found->is_number()) return found->get<double>();
    problem(key, formatted(" = {}, must be a number", found->dump()));
    return fallback;
  }

  bool flag(const char* key, bool fallback) {
    mark(key);
    const auto found = config_.find(key);
    if (found == config_.end() || found->is_null()) return fallback;
    if (found->is_boolean()) return found->get<bool>();
    problem(key, formatted(" = {}, must be true or false", found->dump()));
    return fallback;
  }

  void must_be_off(const char* key) {
    if (!is_off(key))
      problem(key, formatted(" = {} is not supported", config_.at(key).dump().substr(0, 100)));
  }

  /// Records a key that was read without a function of this class.
  void mark(std::string_view key) { read_.emplace(key); }

  /// Returns the keys that have a value and were not read, in the order of the file.
  [[nodiscard]] std::vector<std::string> unread() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : config_.items())
      if (!value.is_null() && !read_.contains(key)) keys.push_back(key);
    return keys;
  }

  void problem(std::string_view key, const std::string& text) {
    problems_ += formatted("\n  {}{}", key, text);
  }

  void raise() const {
    if (!problems_.empty()) fail(ErrorKind::data, "{} cannot be imported:{}", where_, problems_);
  }

 private:
  /// Returns true if the feature is off: absent, null, false, 0 or an empty list.
  [[nodiscard]] bool is_off(const char* key) const {
    const auto found = config_.find(key);
    if (found == config_.end() || found->is_null()) return true;
    if (found->is_boolean()) return !found->get<bool>();
    if (found->is_number()) return found->get<double>() == 0;
    return (found->is_array() || found->is_object()) && found->empty();
  }

  const Json& config_;
  std::string where_;
  std::string problems_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace trireme::checkpoint
