#include "data_prep/pack/pack.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "comm/scalars.hpp"
#include "config/check_options.hpp"
#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/hash/xxh3.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "core/process/failpoints.hpp"
#include "data/sequences/pack_documents.hpp"
#include "data/shards/schema.hpp"
#include "data_prep/documents/document_maker.hpp"
#include "data_prep/input/json_array.hpp"
#include "data_prep/input/line_reader.hpp"
#include "data_prep/pack/manifest_builder.hpp"
#include "data_prep/pack/pack_folder.hpp"
#include "data_prep/pack/pack_partition.hpp"
#include "data_prep/pack/partition_scheduler.hpp"
#include "data_prep/stop_signals.hpp"
#include "data_prep/tokenizer_place.hpp"

namespace trireme {
namespace {

std::uint64_t bytes_of(const Partition& partition) {
  return std::accumulate(
      partition.begin(), partition.end(), std::uint64_t{0},
      [](std::uint64_t sum, const ByteRange& range) { return sum + range.end - range.begin; });
}

std::string bad_place(const std::vector<InputFile>& files, const BadLine& bad) {
  return formatted("{}: {}", byte_place(files[bad.file].path.string(), bad.offset), bad.reason);
}

/// Moves the targets of the partition's documents to `content`. Packs documents that are parts of
/// sequences for `seq_len`. Returns the number of tokens that are targets.
std::uint64_t add_targets(const SetKind& kind, std::int64_t seq_len, PartitionResult& result,
                          ShardContent& content) {
  content.targets = std::move(result.targets);
  std::uint64_t sum = 0;
  if (kind.has_pairs()) {
    for (const SpanColumn& column : kind.spans) sum += column.of(content.targets).num_tokens();
    return sum;
  }
  PackTable& pack = content.packs.emplace_back(pack_documents(result.documents.offset, seq_len));
  if (kind.is_masked()) count_span_targets(content.targets.loss, pack);
  return std::accumulate(pack.targets.begin(), pack.targets.end(), sum);
}

/// Source numbers of the shard count its own sources only, so that a set of many files stays small.
void number_sources(const std::vector<InputFile>& files, const Partition& partition,
                    PartitionResult& result, ShardContent& content) {
  std::map<std::uint32_t, std::uint32_t> local;
  Json sources = Json::array();
  for (const ByteRange& range : partition) {
    if (!local.emplace(range.file, static_cast<std::uint32_t>(local.size())).second) continue;
    sources.push_back({{"name", files[range.file].name},
                       {"size", files[range.file].size},
                       {"lines", result.lines[range.file]}});
  }
  for (std::uint32_t& source : result.documents.source) source = local.at(source);
  Json bad = Json::array();
  for (const BadLine& line : result.bad)
    bad.push_back({local.at(line.file), line.offset, line.reason});
  content.sources_json = sources.dump();
  content.bad_json = bad.dump();
}

/// The inputs of a partition, for a message.
std::string describe(const std::vector<InputFile>& files, const Partition& partition) {
  if (partition.empty()) return "an empty input";
  const std::string first = files[partition.front().file].path.string();
  return partition.size() == 1 ? first
                               : formatted("one of {} inputs from {} on", partition.size(), first);
}

class Packer {
 public:
  Packer(const PackConfig& config, Tokenizer tokenizer, Communicator* world)
      : config_(config),
        rules_(read_rules(config.documents, config.seq_len)),
        tokenizer_(std::move(tokenizer)),
        world_(world != nullptr && world->size() > 1 ? world : nullptr),
        rank_(world_ == nullptr ? 0 : world_->rank()),
        files_(inspect_lines(config.inputs, config.threads, world_)),
        partitions_(plan_partitions(files_, static_cast<std::uint64_t>(config.unit_bytes))),
        manifest_(start_manifest(config, rules_, tokenizer_, files_)),
        chains_(own_chains()),
        folder_(config.output, manifest_, partitions_.size(), part_, sorted(chains_)) {}

  /// A pack of one process that fails before its first shard leaves no folder behind.
  PackReport run() {
    if (world_ != nullptr) return run_all();
    try {
      return run_all();
    } catch (const Error&) {
      folder_.remove_without_shards();
      throw;
    }
  }

 private:
  PackReport run_all() {
    const Timer timer;
    PackReport report{.partitions = partitions_.size(), .kept = folder_.own().size()};
    if (rank_ == 0) {
      warn_of_unknown_markers(config_.documents, tokenizer_);
      report.interrupted = folder_.prepare();
      folder_.place_tokenizer(tokenizer_);
    }
    const auto pending = folder_.find_pending(world_);
    if (pending) report.kept -= pending->size();
    if (rank_ == 0 && pending && report.kept + report.interrupted != 0) say_what_is_kept(report);
    report.left = sum_over_ranks(compare_kept(pending));
    if (pending) {
      report.left += pending->size();
      if (report.left == pending->size()) report.left -= sum_over_ranks(make_shards(*pending));
      if (rank_ == 0 && report.left == 0) {
        report.of_others = folder_.missing_of_others();
        if (report.of_others == 0) publish_manifest();
      }
    }
    if (rank_ == 0 && report.left == 0 && report.of_others == 0)
      report.losses = find_losses(folder_.read_manifest(), rules_.ignore_fields);
    barrier();
    report.seconds = timer.seconds();
    return report;
  }

  using Chains = std::vector<std::vector<std::size_t>>;

  /// Of all chains every part_.count-th.
  [[nodiscard]] Chains own_chains() const {
    const Chains all =
        chain_partitions(files_, partitions_, static_cast<std::uint64_t>(config_.unit_bytes));
    Chains own;
    for (std::size_t i = part_.index; i < all.size(); i += part_.count) own.push_back(all[i]);
    return own;
  }

  static std::vector<std::size_t> sorted(const Chains& chains) {
    std::vector<std::size_t> partitions;
    for (const auto& chain : chains)
      partitions.insert(partitions.end(), chain.begin(), chain.end());
    std::ranges::sort(partitions);
    return partitions;
  }

  static void say_what_is_kept(const PackReport& report) {
    log::info(formatted(
        "{} of {} shards are kept; {}{} under way when the last pack ended, to be made again",
        report.kept, report.partitions, report.interrupted,
        report.interrupted == 1 ? " shard was" : " shards were"));
  }

  /// The inputs of this rank's share of the shards that lie there are read again. Returns how many
  /// it left out because of a stop signal.
  std::uint64_t compare_kept(const std::optional<std::vector<std::size_t>>& pending) {
    std::vector<std::size_t> mine;
    for (auto i = static_cast<std::size_t>(rank_); i < chains_.size();
         i += static_cast<std::size_t>(size()))
      mine.insert(mine.end(), chains_[i].begin(), chains_[i].end());
    mine = kept_partitions(mine, pending);
    if (mine.empty()) return 0;
    std::uint64_t bytes = 0;
    for (const std::size_t partition : mine) bytes += bytes_of(partitions_[partition]);
    ProgressDisplay progress("compare inputs", bytes, rank_ == 0 ? config_.progress : "none");
    WorkerPool pool(thread_count(config_.threads));
    ChunkReader reader(files_, pool.num_threads());
    const auto hash = [&](std::size_t partition) {
      return hash_partition(partitions_[partition], reader, pool, progress,
                            [&] { progress.show(); });
    };
    const auto place = [&](std::size_t partition) {
      return describe(files_, partitions_[partition]);
    };
    const std::uint64_t left = check_inputs_unchanged(folder_.path(), {mine, hash, place});
    progress.finish();
    return left;
  }

  /// Returns how many this rank made.
  std::uint64_t make_shards(const std::vector<std::size_t>& pending) {
    std::vector<std::uint64_t> bytes(partitions_.size());
    std::uint64_t to_do = 0;
    for (const std::size_t partition : pending)
      to_do += bytes[partition] = bytes_of(partitions_[partition]);
    ProgressDisplay progress("pack", to_do, rank_ == 0 ? config_.progress : "none");
    std::uint64_t bad_lines = 0;  // of all ranks, on rank 0
    const auto on_tally = [&](const PartitionTally& tally) {
      progress.add(tally.bytes, tally.documents, tally.tokens);
      bad_lines += tally.bad_lines;
      check_bad_lines(bad_lines, "");
    };
    const auto scheduler = make_scheduler(pending, bytes, on_tally);
    const std::function<void()> tick = [&] {
      progress.show();
      scheduler->serve();
    };

    WorkerPool pool(thread_count(config_.threads));
    ChunkReader reader(files_, pool.num_threads());
    PartitionTally tally;
    std::uint64_t made = 0;
    while (const auto partition = scheduler->next(tally, num_stop_signals() != 0)) {
      const PartitionMarker marker = folder_.mark(*partition);
      try {
        PartitionResult result = tokenize_partition(files_, partitions_[*partition], tokenizer_,
                                                    rules_, reader, pool, progress, tick);
        if (!result.bad.empty())
          check_bad_lines(result.counts.bad_lines,
                          formatted("; the first: {}", bad_place(files_, result.bad.front())));
        failpoint("pack.unit_tokenized");
        tally = {.bad_lines = result.counts.bad_lines};
        if (rank_ != 0)  // rank 0 has counted its chunks itself
          tally = {bytes[*partition], result.counts.documents, result.counts.tokens,
                   tally.bad_lines};
        pool.run(
            1, [&](std::size_t, int) { write(*partition, result); }, tick);
        ++made;
      } catch (const PartitionDropped&) {
        tally = {};
      }
    }
    scheduler->finish();
    if (!pending.empty()) progress.finish();
    return made;
  }

  std::unique_ptr<PartitionScheduler> make_scheduler(
      const std::vector<std::size_t>& pending, const std::vector<std::uint64_t>& bytes,
      const std::function<void(const PartitionTally&)>& on_tally) const {
    Chains chains = chains_;
    for (auto& chain : chains) {
      std::erase_if(chain, [&](std::size_t partition) {
        return !std::binary_search(pending.begin(), pending.end(), partition);
      });
    }
    std::erase_if(chains, [](const auto& chain) { return chain.empty(); });
    if (world_ == nullptr || config_.schedule == "static")
      return std::make_unique<StaticScheduler>(std::move(chains), bytes, rank_, size(), on_tally);
    return std::make_unique<DynamicScheduler>(*world_, PartitionQueue(std::move(chains), bytes),
                                              on_tally);
  }

  /// `count` bad lines are known, and no more can be allowed than asked for.
  void check_bad_lines(std::uint64_t count, const std::string& hint) const {
    if (config_.max_bad < 0 || count <= static_cast<std::uint64_t>(config_.max_bad)) return;
    fail(ErrorKind::data, "more than --max-bad {} bad lines: {} so far{}", config_.max_bad, count,
         hint);
  }

  void write(std::size_t partition, PartitionResult& result) const {
    ShardContent content;
    number_sources(files_, partitions_[partition], result, content);
    result.counts.target_tokens =
        add_targets(set_kind(manifest_.kind), config_.seq_len, result, content);
    content.meta = {.kind = manifest_.kind,
                    .token_dtype = token_dtype_for(tokenizer_.vocab_size()),
                    .vocab_size = tokenizer_.vocab_size(),
                    .identity = manifest_.identity,
                    .shard_index = partition,
                    .shard_count = partitions_.size(),
                    .input_xxh3 = result.input_xxh3,
                    .counts = result.counts,
                    .packs = {}};
    for (const auto& [name, field] : result.ignored)
      content.meta.ignored_fields[name] = field.records;
    for (const PackTable& pack : content.packs)
      content.meta.packs[pack.seq_len] = pack.num_sequences();
    for (const auto& part : result.token_parts) content.token_parts.emplace_back(part);
    content.documents = std::move(result.documents);
    write_shard(folder_.path(), content);
  }

  void publish_manifest() {
    add_shards(folder_.path(), partitions_.size(), manifest_);
    const ShardCounts& counts = manifest_.counts;
    const std::string first_bad =
        manifest_.bad.empty() ? std::string()
                              : formatted("; the first (FILE:BYTE): {}", manifest_.bad.front());
    check_bad_lines(counts.bad_lines, first_bad);
    if (counts.documents == 0) refuse_empty_set();
    failpoint("pack.before_manifest");
    write_file_atomic(folder_.path() / schema::kManifest, manifest_.to_text());
  }

  /// The empty shards go, and the folder with them if this pack made it.
  [[noreturn]] void refuse_empty_set() const {
    for (std::size_t i = 0; i < partitions_.size(); ++i)
      std::filesystem::remove(folder_.path() / schema::shard_name(i));
    const std::string first = files_.front().path.string();
    const std::string inputs =
        files_.size() == 1 ? first : formatted("{} inputs ({}, ...)", files_.size(), first);
    folder_.remove_without_shards();
    fail(ErrorKind::data, "{}", why_nothing(inputs, manifest_));
  }

  [[nodiscard]] int size() const { return world_ == nullptr ? 1 : world_->size(); }

  [[nodiscard]] std::uint64_t sum_over_ranks(std::uint64_t mine) const {
    if (world_ == nullptr) return mine;
    return all_reduce_value(*world_, mine, ReduceOp::sum, "shards made");
  }

  void barrier() const {
    if (world_ != nullptr) world_->barrier();
  }

  const PackConfig& config_;
  DocumentRules rules_;
  Tokenizer tokenizer_;
  Communicator* world_;
  int rank_;
  std::vector<InputFile> files_;
  std::vector<Partition> partitions_;
  Manifest manifest_;
  PackPart part_ = parse_part(config_.part).value();
  Chains chains_;  // of this part
  PackFolder folder_;
};

}  // namespace

std::optional<PackPart> parse_part(std::string_view text) {
  constexpr std::int64_t kMost = 100'000;
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto number = parse_integer(text.substr(0, slash));
  const auto count = parse_integer(text.substr(slash + 1));
  if (!number || !count || *number < 1 || *number > *count || *count > kMost) return std::nullopt;
  return PackPart{static_cast<std::size_t>(*number - 1), static_cast<std::size_t>(*count)};
}

void check(const PackConfig& config, Problems& problems) {
  check(config.documents, problems);
  if (!parse_part(config.part))
    problems.add("part", config.part, "must be K/N with K in [1, N] (2/4: the second of four)");
}

PackReport pack(const PackConfig& config, Communicator* world) {
  throw_if_wrong(config);
  return Packer(config, load_tokenizer(config.tokenizer), world).run();
}

}  // namespace trireme
