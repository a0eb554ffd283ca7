#include "optim/config.hpp"

#include <algorithm>

#include "core/join.hpp"
#include "core/number.hpp"
#include "optim/registry.hpp"
#include "optim/schedule.hpp"

namespace trireme::optim {
namespace {

std::string text_of(const OptimizerKey& key) {
  return std::visit(
      [](const auto& value) -> std::string {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, bool>) {
          return value ? "true" : "false";
        } else if constexpr (std::is_same_v<T, double>) {
          return number_text(value);
        } else {
          return cat(value);
        }
      },
      key.value);
}

/// The description of a key that some optimizers share.
struct KeyMeaning {
  std::string optimizers;  // "adamw, lion"
  std::string text;
};

/// Returns "adamw: ...; sgd: ...". A default that differs from the default of `key` is added.
std::string key_help(const OptimizerKey& key) {
  std::vector<KeyMeaning> meanings;
  for (const OptimizerRow& row : optimizer_rows()) {
    for (const OptimizerKey& own : row.keys()) {
      if (own.name != key.name) continue;
      TRIREME_ASSERT(own.value.index() == key.value.index());  // one type per key
      const std::string text =
          own.value == key.value ? own.help : formatted("{}, default {}", own.help, text_of(own));
      const auto same = std::find_if(meanings.begin(), meanings.end(),
                                     [&](const KeyMeaning& one) { return one.text == text; });
      if (same == meanings.end()) {
        meanings.push_back({row.name, text});
      } else {
        same->optimizers += formatted(", {}", row.name);
      }
    }
  }
  return joined(meanings, "; ", [](const KeyMeaning& meaning) {
    return formatted("{}: {}", meaning.optimizers, meaning.text);
  });
}

std::vector<OptimizerKey> all_keys() {
  std::vector<OptimizerKey> keys;
  for (const OptimizerRow& row : optimizer_rows()) {
    for (OptimizerKey& key : row.keys()) {
      const bool known = std::any_of(keys.begin(), keys.end(), [&](const OptimizerKey& other) {
        return other.name == key.name;
      });
      if (known) continue;
      key.help = key_help(key);
      keys.push_back(std::move(key));
    }
  }
  return keys;
}

}  // namespace

std::vector<OptimizerKey> optimizer_keys() {
  static const std::vector<OptimizerKey> keys = all_keys();
  return keys;
}

const char* optimizer_help() {
  static const std::string help = [] {
    std::string text;
    for (const OptimizerRow& row : optimizer_rows())
      text += formatted("{}{} ({})", text.empty() ? "optimizer: " : ", ", row.name, row.help);
    return text;
  }();
  return help.c_str();
}

void check(const OptimConfig& config, Problems& problems) {
  if (!(config.lr > 0)) problems.add("optim.lr", config.lr, "must be more than 0");
  if (config.lr > kMaxLr)
    problems.add("optim.lr", config.lr, formatted("must be at most {}", kMaxLr));
  if (config.min_lr != kTenthOfLr && !(config.min_lr >= 0))
    problems.add("optim.min_lr", config.min_lr, "must be 0 or more, or -1: 0.1 optim.lr");
  check_not_negative("optim.clip_norm", config.clip_norm, problems);
  if (config.warmup_steps < 0)
    problems.add("optim.warmup_steps", config.warmup_steps, "must be 0 or more");
  problems.one_of("optim.name", config.name, optimizer_names());
  check_schedule(config, problems);
  if (const OptimizerRow* row = find_optimizer(config.name)) row->check(config, problems);
}

}  // namespace trireme::optim
