#pragma once
#include <cstdint>
#include <vector>

#include "objective/sequence_scores.hpp"

namespace trireme {

/// Scores of all pairs of a set, as ranks compute them batch by batch: what a StoredReference is
/// made of.
class ScoreTable {
 public:
  explicit ScoreTable(std::int64_t num_pairs);

  /// Of a batch's pair_records. Where several ranks hold parts of a batch, one of them calls it.
  /// Throws Error(internal) for a pair that the set does not have.
  void put(const Microbatch& batch, const SequenceScores& scores);

  /// What any rank of `group` has, on all of them (collective); of a pair that two have the mean.
  void gather(Communicator& group);

  /// [2 * num_pairs]; NaN where nothing was put.
  [[nodiscard]] std::vector<double> sums() const;
  [[nodiscard]] std::vector<std::int32_t> counts() const;

 private:
  std::vector<double> values_;  // three rows of 2 * num_pairs: sums, counts, how often put
};

}  // namespace trireme
