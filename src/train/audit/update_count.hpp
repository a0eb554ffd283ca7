#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "train/cost/collectives_formula.hpp"
#include "train/cost/memory_formula.hpp"
#include "train/step/step.hpp"

namespace trireme {

/// A group of more than one rank, and what it had done before the update.
struct CountedGroup {
  std::string_view name;
  Communicator* group;
  std::vector<TrafficRow> before;
};

/// What one update of this rank took: bytes that it held, bytes that it sent. Made right before the
/// update (collective: gathers of weights in flight are waited for).
class UpdateCount {
 public:
  explicit UpdateCount(Step& step);

  /// The update is done, not skipped.
  void end(const UpdateResult& result);

  [[nodiscard]] const RankMemory& memory() const { return memory_; }

  [[nodiscard]] const PassStats& passes() const { return passes_; }

  /// As collectives_formula.
  [[nodiscard]] const std::vector<CollectiveRow>& collectives() const { return collectives_; }

 private:
  Step& step_;
  ParamRegistry& registry_;
  std::vector<CountedGroup> groups_;
  std::vector<TrafficRow> world_before_;
  RankMemory memory_;
  PassStats passes_;
  std::vector<CollectiveRow> collectives_;
};

/// Every number that is not what its formula says, a line each; "" when all are. Bytes that a
/// library moved are not known and not compared.
std::string differences(const std::vector<CollectiveRow>& counted,
                        const std::vector<CollectiveRow>& expected);
std::string differences(const RankMemory& counted, const RankMemory& expected);

}  // namespace trireme
