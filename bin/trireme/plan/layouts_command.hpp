#pragma once
#include <memory>
#include <string>

#include "config/command_line.hpp"
#include "train/config/config.hpp"
#include "train/planner/calibration.hpp"
#include "train/planner/rank_layouts.hpp"

namespace trireme {

/// `trireme plan`: layouts of a model on a cluster that nobody has to have, ranked by predicted time.
class LayoutsCommand {
 public:
  explicit LayoutsCommand(CommandLine& line);
  LayoutsCommand(const LayoutsCommand&) = delete;
  LayoutsCommand& operator=(const LayoutsCommand&) = delete;

 private:
  void complete(ConfigSet& keys);
  int run();
  /// Shape, lengths, precision and the update's size, where they are open.
  [[nodiscard]] planner::Wish wish(const planner::Cluster& cluster) const;
  [[nodiscard]] planner::TimeConstants constants(const planner::DeviceKind& kind) const;
  [[nodiscard]] bool batch_is_given() const;
  /// What starts just this update with the same configuration: the layout's keys that are not as they
  /// always are, or as they are given there; rows, sequences and their length.
  [[nodiscard]] std::string options(const planner::Wish& wish, const planner::Layout& layout) const;
  [[nodiscard]] std::string json(const planner::Wish& wish, const planner::Cluster& cluster,
                                 const planner::TimeConstants& constants,
                                 const planner::LayoutPlan& plan,
                                 const std::vector<std::string>& changes) const;
  [[nodiscard]] std::string text(const planner::Wish& wish, const planner::Cluster& cluster,
                                 const planner::LayoutPlan& plan) const;

  RunConfig config_;
  std::unique_ptr<ConfigSet> keys_;
  std::string gpu_;
  std::int64_t nodes_ = 1;
  std::int64_t per_node_ = 8;
  std::int64_t top_ = 5;
  std::string calibration_;
  bool json_ = false;
};

}  // namespace trireme
