#include "train/resume.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.hpp"
#include "core/hash.hpp"

namespace trireme {
namespace {

/// Sections and keys that may differ between the parts of one run. Every other key must agree.
constexpr std::array<std::string_view, 16> kMayDiffer{"parallel.",
                                                      "checkpoint.",
                                                      "data.",
                                                      "model.preset",
                                                      "train.steps",
                                                      "train.epochs",
                                                      "train.micro_batch",
                                                      "train.accumulation",
                                                      "train.device",
                                                      "train.log_every",
                                                      "train.metrics_every",
                                                      "train.eval_every",
                                                      "train.threads",
                                                      "train.comm_timeout_s",
                                                      "train.max_skipped_steps",
                                                      "train.hash_weights_every"};

bool may_differ(const std::string& key) {
  return std::any_of(kMayDiffer.begin(), kMayDiffer.end(), [&](std::string_view one) {
    return one.back() == '.' ? key.starts_with(one) : key == one;
  });
}

}  // namespace

void save_config(std::map<std::string, std::string>& values, const ConfigSet& config) {
  for (const std::string& key : config.keys()) values["config." + key] = config.value(key);
}

void check_same_run(const std::map<std::string, std::string>& values,
                    const ConfigSet& config,
                    const std::string& checkpoint) {
  std::string differences;
  for (const std::string& key : config.keys()) {
    const auto saved = values.find("config." + key);
    if (may_differ(key) || saved == values.end() || saved->second == config.value(key)) continue;
    differences += cat("\n  ",
                       key,
                       " = ",
                       config.value(key),
                       " (",
                       config.origin(key),
                       "), the checkpoint has ",
                       saved->second);
  }
  if (!differences.empty()) {
    fail(ErrorKind::usage,
         "this configuration does not continue ",
         checkpoint,
         ":",
         differences,
         "\nGive the checkpoint's values, or another --run to start anew.");
  }
}

std::string run_identity(const ConfigSet& config, const std::string& data_hash) {
  std::string text = data_hash;
  for (const std::string& key : config.keys()) {
    if (!may_differ(key)) text += cat("\n", key, "=", config.value(key));
  }
  return xxh3_128_hex(text);
}

}  // namespace trireme
