#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "train/cost/collectives_formula.hpp"
#include "train/cost/rank_units.hpp"

namespace trireme::train {

constexpr std::uint64_t u64(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
}

/// Adds the collectives of a rank in one group to the list of all rows.
class FormulaRows {
 public:
  FormulaRows(std::string group, int size, int rank, std::vector<CollectiveRow>& rows)
      : name_(std::move(group)), size_(size), rank_(rank), rows_(rows) {}

  /// Adds `times` calls of `payload` bytes each (payload as in TrafficRow).
  void add(const char* operation, const char* purpose, std::int64_t times,
           std::int64_t payload) const;
  /// Adds `times` calls that send `sent` bytes each: an all-to-all, or a message to a neighbour.
  void add_sent(const char* operation, const char* purpose, std::int64_t times,
                std::int64_t payload, std::uint64_t sent) const;
  /// Adds `times` calls with an unknown number of bytes, which routing decides.
  void add_calls(const char* operation, const char* purpose, std::int64_t times) const;
  void add_all_to_all(const char* purpose, std::int64_t times,
                      const std::vector<std::uint64_t>& parts) const;

  [[nodiscard]] int size() const { return size_; }

 private:
  std::string name_;
  int size_;
  int rank_;
  std::vector<CollectiveRow>& rows_;
};

/// Adds the collectives of a rank in its context parallel group: keys and values of attention, and
/// token counts of routers with a loss over the sequence.
void add_context_rows(const UpdateFacts& facts, const parallel::RankCoords& coords,
                      const RankUnits& units, std::vector<CollectiveRow>& rows);

/// Adds the collectives of fp8 scales: amax values that ranks of tp share, and amax histories.
void add_fp8_rows(const UpdateFacts& facts, int rank, const RankUnits& units,
                  std::vector<CollectiveRow>& rows);

}  // namespace trireme::train
