#include "parallel/pipeline/stage_plan.hpp"

#include <string_view>

#include "pipeline/named.hpp"

namespace trireme {
namespace {

/// Of an update; without pipeline the keys that shape one have no effect.
struct NamedShape {
  std::string_view name;
  pipeline::Shape shape;
};

NamedShape named_shape(const ParallelConfig& config, int micro_batches) {
  if (config.pp == 1) return {"1f1b", {1, 1, micro_batches}};
  const int stages =
      pipeline::stages_a_rank(config.schedule, static_cast<int>(config.virtual_stages));
  return {config.schedule, {static_cast<int>(config.pp), stages, micro_batches}};
}

}  // namespace

pipeline::Placement stage_placement(const ParallelConfig& config) {
  return stage_schedule(config, 0).placement;
}

pipeline::Schedule stage_schedule(const ParallelConfig& config, int micro_batches) {
  const NamedShape what = named_shape(config, micro_batches);
  return pipeline::named_schedule(what.name, what.shape);
}

}  // namespace trireme
