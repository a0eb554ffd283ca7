#include "model/block.hpp"

/// The keys and the rotations of the attention of one layer.
namespace trireme::model {

const ops::RopeTables& Block::rope() const {
  const ModelConfig& c = context_.config;
  if (!c.has_rope(index_)) return context_.no_rope;
  return c.local_rope_theta > 0 && c.has_window(index_) ? context_.local_rope : context_.rope;
}

ops::AttentionSetup Block::attention_of(const parallel::Microbatch& batch) const {
  ops::AttentionSetup setup = context_.config.attention_setup(index_, batch.bounds);
  std::int64_t& window = setup.mask.window;
  const std::int64_t limit = batch.training ? context_.training_window : 0;
  if (limit > 0 && (window == 0 || window > limit)) window = limit;
  setup.memo = batch.attention;
  return setup;
}

}  // namespace trireme::model
