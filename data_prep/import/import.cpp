#include "data_prep/import/import.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "comm/self/self_communicator.hpp"
#include "config/check_options.hpp"
#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/hash/xxh3.hpp"
#include "core/process/failpoints.hpp"
#include "data/sequences/pack_documents.hpp"
#include "data/shards/schema.hpp"
#include "data_prep/identity.hpp"
#include "data_prep/input/inputs.hpp"
#include "data_prep/pack/make_shards.hpp"
#include "data_prep/pack/pack_directory.hpp"
#include "data_prep/pack/pack_plan.hpp"
#include "data_prep/pack/publish.hpp"
#include "data_prep/tokenizer_path.hpp"
#include "text/tokenizer.hpp"

namespace trireme::data_prep {
namespace {

constexpr std::uint64_t kTokensRead = std::uint64_t{1} << 20;  // tokens per read

/// A part of one input; `begin` and `end` are token positions.
struct TokenPartition {
  std::size_t file = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// Returns the paths of the .bin files. A Megatron set may be named by prefix, .bin or .idx.
std::vector<std::string> bin_paths(const ImportConfig& config) {
  std::vector<std::string> paths = config.inputs;
  if (config.format != "megatron") return paths;
  for (std::string& path : paths) {
    if (path.ends_with(".idx")) path.resize(path.size() - 4);
    if (!path.ends_with(".bin")) path += ".bin";
  }
  return paths;
}

/// Returns the input_xxh3 of a shard.
std::string input_hash(const std::vector<std::byte>& tokens) {
  const std::uint64_t hash = xxh3_64(tokens);
  return xxh3_128_hex({reinterpret_cast<const char*>(&hash),
                       sizeof hash});  // little-endian, like all data in a shard
}

class Importer {
 public:
  Importer(const ImportConfig& config, comm::Communicator& world)
      : config_(config), world_(world), inputs_(inspect_inputs(bin_paths(config))) {
    if (!config.tokenizer.empty()) tokenizer_ = load_tokenizer(config.tokenizer);
    vocab_size_ =
        tokenizer_ ? tokenizer_->vocab_size() : static_cast<std::uint64_t>(config.vocab_size);
    for (const InputFile& input : inputs_) open(input);
    if (partitions_.empty()) fail(ErrorKind::data, "the inputs contain no tokens");
    start_manifest();
    directory_.emplace(config.output, manifest_, partitions_.size(), PackPart{},
                       all_shards(partitions_.size()));
  }

  ImportReport run() {
    const Timer timer;
    directory_->prepare(tokenizer_ ? &*tokenizer_ : nullptr, world_);
    const PackDirectoryState state = directory_->look(world_);
    compare_kept(state.kept);
    if (!state.is_finished) {
      make_shards(state.missing);
      world_.barrier();
      if (world_.rank() == 0) {
        add_shards(directory_->path(), partitions_.size(), manifest_);
        failpoint("import.before_manifest");
        write_file_atomic(directory_->path() / data::schema::kManifest, manifest_.to_text());
      }
    }
    world_.barrier();
    ImportReport report{.partitions = partitions_.size(), .kept = state.kept.size()};
    report.seconds = timer.seconds();
    return report;
  }

 private:
  void open(const InputFile& input) {
    files_.push_back(config_.format == "megatron"
                         ? open_megatron(input)
                         : open_llm_c(input.path, config_.eot_id, eot_position_named(config_.eot)));
    const auto part = static_cast<std::uint64_t>(config_.shard_tokens);
    const std::uint64_t tokens = files_.back()->num_tokens();
    if (const std::uint64_t shards = partitions_.size() + (tokens + part - 1) / part;
        shards > kMaxShards) {
      fail(
          ErrorKind::usage,
          "--shard-tokens {} would make {} shards of the inputs up to {}, at most {} are allowed; give a larger value",
          part, shards, input.path.string(), kMaxShards);
    }
    for (std::uint64_t begin = 0; begin < tokens; begin += part)
      partitions_.push_back({files_.size() - 1, begin, std::min(tokens, begin + part)});
    if (tokens > part && ends_without_cut(*files_.back(), partitions_.back(), part)) {
      partitions_.pop_back();
      partitions_.back().end = tokens;
    }
  }

  /// Returns true if no document starts in the `last` part of `file`, and the document that ends
  /// there is not longer than a part.
  static bool ends_without_cut(const ForeignTokens& file, const TokenPartition& last,
                               std::uint64_t part) {
    return file.documents(last.begin, last.end, /*only_first=*/true).empty() &&
           !file.documents(last.end - part, last.begin, /*only_first=*/true).empty();
  }

  void start_manifest() {
    manifest_.kind = "pretrain";
    manifest_.vocab_size = vocab_size_;
    manifest_.seq_len = config_.seq_len;
    manifest_.tokenizer_hash = "none";
    if (tokenizer_) put_tokenizer(*tokenizer_, manifest_);
    Json asked = Json::object();
    asked["import"] = config_.format;
    put_fields(config_, {}, asked);
    asked["packing_rule"] = data::kPackingRule;
    if (config_.format == "llm.c") {
      asked["eot_id"] = config_.eot_id == kEotOfFormat ? Json(nullptr) : Json(config_.eot_id);
      asked["eot"] = config_.eot;
    } else {
      asked["indexes"] = Json::array();
      for (const InputFile& input : inputs_)
        asked["indexes"].push_back(hash_file(index_of_megatron(input)));
    }
    manifest_.config_json = asked.dump();
    put_inputs(inputs_, manifest_);
  }

  /// Returns the shards of this rank: every size-th shard. Shards do not depend on the rank.
  [[nodiscard]] Shards share_of(const Shards& shards) const {
    Shards mine;
    for (auto i = static_cast<std::size_t>(world_.rank()); i < shards.size();
         i += static_cast<std::size_t>(world_.size()))
      mine.push_back(shards[i]);
    return mine;
  }

  void make_shards(const Shards& missing) {
    const Shards mine = share_of(missing);
    std::uint64_t bytes = 0;
    for (const std::size_t shard : mine) bytes += stored_bytes(partitions_[shard]);
    const int rank = world_.rank();
    ProgressDisplay progress(world_.size() == 1 ? "import" : formatted("import, rank {}", rank),
                             bytes, rank == 0 ? config_.progress : "none");
    for (const std::size_t shard : mine) {
      const data::ShardCounts counts = make_shard(shard);
      progress.add(stored_bytes(partitions_[shard]), counts.documents, counts.tokens);
      progress.show();
    }
    if (!mine.empty()) progress.finish();
  }

  /// Reads the inputs of this rank's existing shards again and compares their hashes.
  void compare_kept(const Shards& kept) const {
    const auto hash = [&](std::size_t partition) {
      const auto [begin, end] = token_range(partition);
      return input_hash(read_tokens(*files_[partitions_[partition].file], begin, end,
                                    data::token_dtype_for(vocab_size_)));
    };
    const auto place = [&](std::size_t partition) {
      return inputs_[partitions_[partition].file].path.string();
    };
    directory_->compare(share_of(kept), hash, place);
  }

  [[nodiscard]] std::uint64_t stored_bytes(const TokenPartition& partition) const {
    return files_[partition.file]->byte_of(partition.end) -
           files_[partition.file]->byte_of(partition.begin);
  }

  /// Returns the first token of a partition: of the first document that starts in its part, else of
  /// the part.
  [[nodiscard]] std::uint64_t first_token(std::size_t number) const {
    const TokenPartition& partition = partitions_[number];
    const auto first =
        files_[partition.file]->documents(partition.begin, partition.end, /*only_first=*/true);
    return first.empty() ? partition.begin : first.front();
  }

  /// Returns the tokens [begin, end) of the input that the shard of a partition contains.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> token_range(std::size_t number) const {
    const std::size_t file = partitions_[number].file;
    const bool last = number + 1 == partitions_.size() || partitions_[number + 1].file != file;
    return {first_token(number), last ? files_[file]->num_tokens() : first_token(number + 1)};
  }

  data::ShardCounts make_shard(std::size_t number) const {
    const ForeignTokens& file = *files_[partitions_[number].file];
    const auto [begin, end] = token_range(number);
    std::vector<std::uint64_t> starts = file.documents(begin, end, /*only_first=*/false);
    if (starts.empty() || starts.front() != begin) starts.insert(starts.begin(), begin);

    data::ShardContent content;
    const DType dtype = data::token_dtype_for(vocab_size_);
    const std::vector<std::byte>& tokens =
        content.documents.token_parts.emplace_back(read_tokens(file, begin, end, dtype));
    const std::size_t width = size_of(dtype);
    starts.push_back(end);
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
      const std::span<const std::byte> document = std::span(tokens).subspan(
          (starts[i] - begin) * width, (starts[i + 1] - starts[i]) * width);
      content.documents.offset.push_back(starts[i + 1] - begin);
      content.documents.source.push_back(0);
      content.documents.source_offset.push_back(file.byte_of(starts[i]));
      content.documents.text_xxh3.push_back(xxh3_64(document));
    }
    const InputFile& input = inputs_[partitions_[number].file];
    content.sources_json = Json::array({{{"name", input.name}, {"size", input.size}}}).dump();
    complete_shard(manifest_, number, partitions_.size(), input_hash(tokens), content);
    failpoint("import.unit_read");
    data::write_shard(directory_->path(), content);
    return content.meta.counts;
  }

  [[nodiscard]] std::vector<std::byte> read_tokens(const ForeignTokens& file, std::uint64_t begin,
                                                   std::uint64_t end, DType dtype) const {
    std::vector<std::byte> tokens((end - begin) * size_of(dtype));
    std::vector<std::uint32_t> ids;
    for (std::uint64_t at = begin; at < end; at += ids.size()) {
      ids.resize(std::min(kTokensRead, end - at));
      file.read(at, ids, vocab_size_);
      std::byte* to = tokens.data() + (at - begin) * size_of(dtype);
      if (dtype == DType::u16) {
        std::transform(ids.begin(), ids.end(), reinterpret_cast<std::uint16_t*>(to),
                       [](auto id) { return static_cast<std::uint16_t>(id); });
      } else {
        std::copy(ids.begin(), ids.end(), reinterpret_cast<std::uint32_t*>(to));
      }
    }
    return tokens;
  }

  const ImportConfig& config_;
  comm::Communicator& world_;
  std::vector<InputFile> inputs_;
  std::optional<text::Tokenizer> tokenizer_;
  std::uint64_t vocab_size_ = 0;
  std::vector<std::unique_ptr<ForeignTokens>> files_;
  std::vector<TokenPartition> partitions_;
  data::Manifest manifest_;
  std::optional<PackDirectory> directory_;
};

}  // namespace

void check(const ImportConfig& config, Problems& problems) {
  if (config.tokenizer.empty() &&
      (config.vocab_size < 1 || config.vocab_size > std::int64_t{1} << 31)) {
    problems.add(
        "give --tokenizer, or --vocab-size in [1, 2147483648] for a set without a tokenizer (it trains, but its checkpoints cannot turn text into tokens)");
  }
  if (!config.tokenizer.empty() && config.vocab_size != 0)
    problems.add(
        "--vocab-size and --tokenizer exclude each other: the tokenizer sets the vocabulary size");
}

ImportReport import_tokens(const ImportConfig& config, comm::Communicator* world) {
  config::throw_if_wrong(config);
  comm::SelfCommunicator alone;
  return Importer(config, world == nullptr ? alone : *world).run();
}

}  // namespace trireme::data_prep
