#include "parallel/mesh.hpp"

#include <string>
#include <vector>

#include "core/error.hpp"

namespace trireme {
namespace {

/// Layout keys without an engine in this version, refused rather than ignored.
void refuse_unbuilt(const ParallelConfig& config) {
  std::string problems;
  const auto refuse = [&](const char* key, const auto& value, const char* allowed) {
    problems += cat(problems.empty() ? "" : "\n",
                    "parallel.",
                    key,
                    " = ",
                    value,
                    ", this version supports ",
                    allowed);
  };
  if (config.tp != 1) refuse("tp", config.tp, "1");
  if (config.cp != 1) refuse("cp", config.cp, "1");
  if (config.pp != 1) refuse("pp", config.pp, "1");
  if (config.ep != 1) refuse("ep", config.ep, "1");
  if (config.zero != 0) refuse("zero", config.zero, "0");
  if (config.sequence_parallel) refuse("sequence_parallel", "true", "false");
  if (config.recompute != "none" && config.recompute != "full")
    refuse("recompute", config.recompute, "none or full");
  if (config.schedule != "1f1b") refuse("schedule", config.schedule, "1f1b");
  if (config.hierarchical) refuse("hierarchical", "true", "false");
  if (!(config.bucket_mb >= 0)) refuse("bucket_mb", config.bucket_mb, "0 or more");
  if (!problems.empty()) fail(ErrorKind::usage, problems);
}

}  // namespace

Mesh::Mesh(Communicator& world, const ParallelConfig& config) : world_(world) {
  refuse_unbuilt(config);
  const auto tp = static_cast<int>(config.tp);
  const auto cp = static_cast<int>(config.cp);
  const auto pp = static_cast<int>(config.pp);
  const int model_ranks = tp * cp * pp;
  if (world.size() % model_ranks != 0) {
    fail(ErrorKind::usage,
         "parallel.tp * cp * pp = ",
         model_ranks,
         " does not divide the ",
         world.size(),
         " ranks started");
  }
  const int dp = world.size() / model_ranks;
  const int at_tp = world.rank() % tp;
  const int at_cp = world.rank() / tp % cp;
  const int at_dp = world.rank() / (tp * cp) % dp;
  const int at_pp = world.rank() / (tp * cp * dp);
  // The color of a group is the position on every other axis.
  const std::array<int, kAxisNames.size()> colors{at_cp + cp * (at_dp + dp * at_pp),
                                                  at_tp + tp * (at_dp + dp * at_pp),
                                                  at_tp + tp * (at_cp + cp * at_pp),
                                                  at_tp + tp * (at_cp + cp * at_dp),
                                                  at_tp + tp * at_pp};
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i] = world.split(colors[i], world.rank(), std::string(kAxisNames[i]));
  }
}

}  // namespace trireme
