#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "train/cost/collectives_formula.hpp"
#include "train/cost/memory_formula.hpp"
#include "train/step/step.hpp"

namespace trireme::train {

/// A communicator of more than one rank, with its traffic before the update.
struct CountedGroup {
  std::string_view name;
  comm::Communicator* group;
  std::vector<comm::TrafficRow> before;
};

/// Counts the bytes that one update of this rank holds and sends. Create it right before the
/// update. Collective: it waits for pending gathers of weights.
class UpdateCount {
 public:
  explicit UpdateCount(Step& step);

  /// Ends the count. The update must not have been skipped.
  void end(const UpdateResult& result);

  [[nodiscard]] const RankMemory& memory() const { return memory_; }

  [[nodiscard]] const PassStats& passes() const { return passes_; }

  /// Returns the counted collectives in the form of collectives_formula.
  [[nodiscard]] const std::vector<CollectiveRow>& collectives() const { return collectives_; }

 private:
  Step& step_;
  parallel::ParamRegistry& registry_;
  std::vector<CountedGroup> groups_;
  std::vector<comm::TrafficRow> world_before_;
  RankMemory memory_;
  PassStats passes_;
  std::vector<CollectiveRow> collectives_;
};

/// Returns one line for every number that differs from its formula; "" if all agree. Bytes that a
/// library moved are unknown and not compared.
std::string differences(const std::vector<CollectiveRow>& counted,
                        const std::vector<CollectiveRow>& expected);
std::string differences(const RankMemory& counted, const RankMemory& expected);

}  // namespace trireme::train
