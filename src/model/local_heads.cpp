#include "model/block.hpp"

namespace trireme::model {

LocalHeads local_heads(const ModelConfig& config, int ranks, int rank) {
  LocalHeads share{
      parallel::split_range(config.num_heads, {}, ranks, rank),
      parallel::split_range(config.num_kv_heads, {.readers = config.num_heads}, ranks, rank),
      {}};
  const std::int64_t readers = config.num_heads / config.num_kv_heads;
  const std::int64_t keys = share.key.count();
  bool equal = keys > 0 && share.query.count() % keys == 0;
  for (std::int64_t head = share.query.begin; head < share.query.end; ++head) {
    const std::int64_t key = head / readers - share.key.begin;
    equal = equal && key == (head - share.query.begin) / (share.query.count() / keys);
    share.key_of_query.push_back(key);
  }
  if (equal) share.key_of_query.clear();
  return share;
}

}  // namespace trireme::model
