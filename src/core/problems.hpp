#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme {

/// Collects all problems of the configuration, so that a user sees all of them at once.
///
/// A component checks its struct beside its fields() and does not know where values come from:
///   void check(const AdamWConfig& config, Problems& problems) {
///     if (config.beta1 < 0 || config.beta1 >= 1)
///       problems.add("optim.beta1", config.beta1, "must be in [0, 1)");
///   }
/// gives "optim.beta1 = 1.2, must be in [0, 1) (run.toml:12)".
class Problems {
 public:
  /// Returns the place that set a key ("run.toml:12", "--optim.beta1"), or "" or "default".
  using Place = std::function<std::string(const std::string& key)>;

  Problems() = default;

  explicit Problems(Place place) : place_(std::move(place)) {}

  /// Adds a complete line.
  void add(std::string line) { lines_.push_back(std::move(line)); }

  /// Adds "<key> = <value>, <allowed> (<place of key>)", or "--<option> <value>, ..." if `key` is
  /// the name of an option. `allowed` begins with a verb: "must be in [0, 1)".
  template <class T>
  void add(const std::string& key, const T& value, std::string_view allowed) {
    add(formatted("{}{}{}, {}{}", key, key.starts_with("--") ? " " : " = ", shown(value), allowed,
                  place_of(key)));
  }

  /// Adds a problem unless `value` is in `allowed`: "optim.name = adam, must be one of adamw, muon;
  /// did you mean 'adamw'?", "--kind rl, must be pretrain, sft or dpo".
  void one_of(const std::string& key, const std::string& value,
              std::span<const std::string> allowed);

  /// Returns the allowed values of a key that was checked with one_of(); null if there is no such
  /// list. Help and completion use it after a check.
  [[nodiscard]] const std::vector<std::string>* allowed(const std::string& key) const;

  [[nodiscard]] bool empty() const noexcept { return lines_.empty(); }

  [[nodiscard]] const std::vector<std::string>& lines() const noexcept { return lines_; }

  /// Throws one Error(usage) with all lines in order; does nothing if there is none.
  void throw_if_any() const;

 private:
  static const std::string& shown(const std::string& value) { return value; }

  static std::string shown(double value) { return number_text(value); }

  static std::string shown(bool value) { return value ? "true" : "false"; }

  template <class T>
  static const T& shown(const T& value) {
    return value;
  }

  [[nodiscard]] std::string place_of(const std::string& key) const;

  Place place_;
  std::map<std::string, std::vector<std::string>> allowed_;
  std::vector<std::string> lines_;
};

}  // namespace trireme
