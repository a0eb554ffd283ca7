#include "data_prep/pack/make_shards.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/process/failpoints.hpp"
#include "data/sequences/pack_documents.hpp"
#include "data_prep/pack/pack_partition.hpp"
#include "data_prep/pack/partition_scheduler.hpp"
#include "data_prep/pack/publish.hpp"
#include "data_prep/stop_signals.hpp"

namespace trireme::data_prep {
namespace {

/// Returns a progress display that only rank 0 shows.
ProgressDisplay progress_of(const PackWork& work, const char* what, std::uint64_t bytes) {
  return {what, bytes, work.world.rank() == 0 ? work.config.progress : "none"};
}

/// Returns the groups of the plan without the existing shards.
std::vector<Shards> missing_groups(const PackPlan& plan, const Shards& missing) {
  std::vector<Shards> groups = plan.groups;
  for (Shards& group : groups) {
    std::erase_if(group,
                  [&](std::size_t shard) { return !std::ranges::binary_search(missing, shard); });
  }
  std::erase_if(groups, [](const Shards& group) { return group.empty(); });
  return groups;
}

data::ShardContent shard_content(const PackWork& work, std::size_t shard, PartitionResult& result) {
  const PackPlan& plan = work.plan;
  data::ShardContent content;
  content.documents = std::move(result.documents);
  for (const auto& [name, field] : result.ignored)
    content.meta.ignored_fields[name] = field.records;
  // A shard names only its own sources, so that a set of many files stays small.
  Json sources = Json::array();
  for (std::size_t i = 0; i < plan.partitions[shard].size(); ++i) {
    const InputFile& file = plan.inputs[plan.partitions[shard][i].file];
    Json& source = sources.emplace_back(
        Json{{"name", file.name}, {"size", file.size}, {"lines", result.lines[i]}});
    if (file.format->position != "byte") source["position"] = file.format->position;
  }
  Json bad = Json::array();
  for (const InvalidRecord& line : result.bad)
    bad.push_back({line.source, line.position, line.reason});
  content.sources_json = sources.dump();
  content.bad_json = bad.dump();
  complete_shard(plan.manifest, shard, plan.partitions.size(), result.input_xxh3, content);
  return content;
}

/// Throws Error(data) if the partition alone has more invalid records than --max-bad.
void check_invalid_records(const PackWork& work, std::size_t shard, const PartitionResult& result) {
  if (result.bad.empty()) return;
  const InvalidRecord& first = result.bad.front();
  const InputFile& file = work.plan.inputs[work.plan.partitions[shard][first.source].file];
  check_invalid_records(
      work.config, result.documents.counts.bad_lines,
      formatted("; the first: {}: {}", record_location(file, first.position), first.reason));
}

}  // namespace

void complete_shard(const data::Manifest& manifest, std::size_t shard, std::size_t num_shards,
                    const std::string& input_xxh3, data::ShardContent& content) {
  data::DocumentColumns& documents = content.documents;
  const data::SetContent& columns = manifest.contents();
  data::ShardCounts& counts = documents.counts;
  counts.documents = documents.source.size();
  counts.tokens = documents.offset.back();
  if (columns.has_pairs()) {
    for (const data::SpanColumn& column : columns.spans)
      counts.target_tokens += column.of(documents.targets).num_tokens();
  } else if (columns.has_sequences()) {
    data::PackTable& pack =
        content.packs.emplace_back(data::pack_documents(documents.offset, manifest.seq_len));
    if (columns.is_masked()) data::count_span_targets(documents.targets.loss, pack);
    counts.target_tokens =
        std::accumulate(pack.targets.begin(), pack.targets.end(), std::uint64_t{0});
    content.meta.packs[pack.seq_len] = pack.num_sequences();
  }
  data::ShardMeta& meta = content.meta;
  meta.kind = manifest.kind;
  meta.stored_as = manifest.stored_as;
  meta.token_dtype = data::token_dtype_for(manifest.vocab_size);
  meta.vocab_size = manifest.vocab_size;
  meta.identity = manifest.identity;
  meta.shard_index = shard;
  meta.shard_count = num_shards;
  meta.input_xxh3 = input_xxh3;
  meta.counts = counts;
}

std::uint64_t compare_kept(const PackWork& work, const Shards& kept) {
  const PackPlan& plan = work.plan;
  Shards mine;
  std::uint64_t bytes = 0;
  for (auto i = static_cast<std::size_t>(work.world.rank()); i < plan.groups.size();
       i += static_cast<std::size_t>(work.world.size())) {
    for (const std::size_t shard : plan.groups[i]) {
      if (!std::ranges::binary_search(kept, shard)) continue;
      mine.push_back(shard);
      bytes += plan.bytes(shard);
    }
  }
  if (mine.empty()) return 0;
  ProgressDisplay progress = progress_of(work, "compare inputs", bytes);
  WorkerPool pool(thread_count(work.config.threads));
  ChunkReader reader(plan.inputs, pool.num_threads());
  const auto hash = [&](std::size_t shard) {
    return hash_partition(plan.inputs, plan.partitions[shard], reader, pool, progress,
                          [&] { progress.show(); });
  };
  const std::uint64_t left =
      work.directory.compare(mine, hash, [&](std::size_t shard) { return plan.describe(shard); });
  progress.finish();
  return left;
}

std::uint64_t make_shards(const PackWork& work, const Shards& missing) {
  const PackPlan& plan = work.plan;
  std::vector<std::uint64_t> bytes(plan.partitions.size());
  std::uint64_t to_do = 0;
  for (const std::size_t shard : missing) to_do += bytes[shard] = plan.bytes(shard);
  ProgressDisplay progress = progress_of(work, "pack", to_do);
  std::uint64_t bad_lines = 0;  // sum over all ranks, on rank 0
  const auto on_tally = [&](const PartitionProgress& tally) {
    progress.add(tally.bytes, tally.documents, tally.tokens);
    bad_lines += tally.bad_lines;
    check_invalid_records(work.config, bad_lines, "");
  };
  PartitionScheduler scheduler(work.world, missing_groups(plan, missing), bytes,
                               work.config.schedule == "static", on_tally);
  const std::function<void()> tick = [&] {
    progress.show();
    scheduler.serve();
  };

  WorkerPool pool(thread_count(work.config.threads));
  ChunkReader reader(plan.inputs, pool.num_threads());
  PartitionProgress tally;
  std::uint64_t made = 0;
  while (const auto shard = scheduler.next(tally, num_stop_signals() != 0)) {
    const MarkerFile marker = work.directory.mark(*shard);
    try {
      PartitionResult result =
          tokenize_partition(plan.inputs, plan.partitions[*shard], work.tokenizer, work.rules,
                             reader, pool, progress, tick);
      check_invalid_records(work, *shard, result);
      failpoint("pack.unit_tokenized");
      const data::ShardCounts& counts = result.documents.counts;
      tally = {.bad_lines = counts.bad_lines};
      if (work.world.rank() != 0)  // rank 0 has already counted its chunks
        tally = {bytes[*shard], counts.documents, counts.tokens, counts.bad_lines};
      // Write on a thread of the pool, so that a long write does not block messages of other ranks.
      const auto write = [&](std::size_t, int) {
        data::write_shard(work.directory.path(), shard_content(work, *shard, result));
      };
      pool.run(1, write, tick);
      ++made;
    } catch (const PartitionDropped&) {
      tally = {};
    }
  }
  scheduler.finish();
  if (!missing.empty()) progress.finish();
  return made;
}

}  // namespace trireme::data_prep
