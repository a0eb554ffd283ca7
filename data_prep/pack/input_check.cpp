#include "data_prep/pack/input_check.hpp"

#include <algorithm>
#include <iterator>

#include "core/error.hpp"
#include "data/shards/schema.hpp"
#include "data/shards/shard_reader.hpp"
#include "data_prep/stop_signals.hpp"

namespace trireme {

std::uint64_t check_inputs_unchanged(const std::filesystem::path& folder, const InputCheck& check) {
  for (std::size_t i = 0; i < check.partitions.size(); ++i) {
    const std::size_t partition = check.partitions[i];
    if (num_stop_signals() != 0) return check.partitions.size() - i;
    const std::filesystem::path path = folder / schema::shard_name(partition);
    const std::string made_of = TokenShard::open(path).meta().input_xxh3;
    std::string now;
    try {
      now = check.hash(partition);
    } catch (const PartitionDropped&) {
      return check.partitions.size() - i;
    }
    if (now == made_of) continue;
    fail(
        ErrorKind::usage,
        "{} has changed since {} was made of it: its bytes hash to {}, were {}; use another --output, or delete the folder",
        check.place(partition), path.string(), now, made_of);
  }
  return 0;
}

std::vector<std::size_t> kept_partitions(const std::vector<std::size_t>& order,
                                         const std::optional<std::vector<std::size_t>>& pending) {
  std::vector<std::size_t> kept;
  std::copy_if(order.begin(), order.end(), std::back_inserter(kept), [&](std::size_t partition) {
    return !pending || !std::binary_search(pending->begin(), pending->end(), partition);
  });
  return kept;
}

}  // namespace trireme
