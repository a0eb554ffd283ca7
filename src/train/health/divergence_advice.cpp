#include "train/health/divergence_advice.hpp"

#include <algorithm>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/manifest.hpp"
#include "core/error.hpp"
#include "core/escape.hpp"
#include "core/number.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLeastWarmup = 100;

/// Returns the run directory with the first free number, such as "runs/first-2".
fs::path next_folder(const fs::path& run) {
  const fs::path plain = run.has_filename() ? run : run.parent_path();
  for (int number = 2;; ++number) {
    fs::path next = plain;
    next += formatted("-{}", number);
    std::error_code code;
    if (!fs::exists(next, code)) return next;
  }
}

}  // namespace

std::string divergence_advice(const RunConfig& config, const RunFolder& folder,
                              const std::string& program, std::string_view task, int ranks) {
  const std::vector<std::int64_t> steps = list_steps(folder.checkpoints());
  const double lr = config.optim.lr / 2;
  std::string command = formatted("{} {}", shell_word(program), task);
  command +=
      steps.empty()
          ? formatted(" --config {}", shell_word(folder.config().string()))
          : formatted(
                " --resume {}",
                shell_word((folder.checkpoints() / step_folder_name(steps.front())).string()));
  command += formatted(" --run {}", shell_word(next_folder(folder.root).string()));
  command += formatted(" --optim.lr {}", number_text(lr));
  if (config.optim.min_lr > lr) command += formatted(" --optim.min_lr {}", number_text(lr));
  if (steps.empty()) {
    const std::int64_t warmup = std::max(2 * config.optim.warmup_steps, kLeastWarmup);
    command += formatted(" --optim.warmup_steps {}", warmup);
  }
  if (config.train.precision == "fp16") command += " --train.precision bf16";
  return formatted("a new run {} with half the learning rate{}:\n  {}",
                   steps.empty() ? "from the beginning" : "from the last checkpoint",
                   ranks > 1 ? formatted(", under the launcher of this one ({} ranks)", ranks) : "",
                   command);
}

}  // namespace trireme
