#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/launch.hpp"
#include "config/command_line.hpp"
#include "generate/load_model.hpp"
#include "train/eval/set_scores.hpp"

namespace trireme {

/// `trireme dpo-reference`: computes the log-probabilities that a model gives every pair of all
/// data sets of a run, once for many epochs.
class DpoReferenceCommand {
 public:
  DpoReferenceCommand(CommandLine& line, Launch& launch);
  DpoReferenceCommand(const DpoReferenceCommand&) = delete;
  DpoReferenceCommand& operator=(const DpoReferenceCommand&) = delete;

 private:
  int run();
  void check() const;
  /// Opens every data set at every length that a run of this data trains or validates on.
  [[nodiscard]] std::vector<std::unique_ptr<ScoredSet>> open_sets(const LoadedModel& model) const;

  Launch& launch_;
  std::string init_;
  std::string data_;
  std::string valid_path_;
  std::string score_ = "all";
  std::string output_;
  std::int64_t batch_ = 4;
  std::int64_t seq_len_ = 0;
  std::string device_ = "auto";
  std::string precision_ = "fp32";
  bool allow_other_template_ = false;
};

}  // namespace trireme
