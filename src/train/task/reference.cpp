#include "train/task/reference.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/escape.hpp"
#include "core/join.hpp"
#include "core/log.hpp"
#include "parallel/context/shard_sequence.hpp"

namespace trireme::train {
namespace {

/// Returns the command that computes all scores that the run needs.
std::string command_for(const ScoreReader& reader) {
  const RunConfig& config = reader.config;
  const bool named = config.checkpoint.names_checkpoint();
  std::string text = formatted("trireme dpo-reference --init {} --data {}",
                               named ? shell_word(config.checkpoint.resume) : "MODEL",
                               shell_word(config.data.path));
  if (!config.data.valid_path.empty() && config.train.eval_every > 0)
    text += cat(" --data.valid_path ", shell_word(config.data.valid_path));
  text += formatted(" --seq-len {} --precision {}", config.train.seq_len, config.train.precision);
  if (reader.keys.score != "all") text += cat(" --dpo.score ", reader.keys.score);
  return cat(text, " --output ", shell_word(reader.keys.reference));
}

[[noreturn]] void fail_reference(const ScoreReader& reader, const std::string& what) {
  fail(ErrorKind::usage,
       "{}.reference = {} {}. Move that directory away and compute the scores again:\n  {}",
       reader.keys.section, reader.keys.reference, what, command_for(reader));
}

/// Returns the reason why the table has no scores of a data set at this sequence length.
std::string reason_of(const checkpoint::ReferenceTable& table, const data::SampleSet& samples) {
  const std::string& content = samples.set().content_hash();
  std::vector<std::string> lengths;
  std::vector<std::string> others;
  for (const checkpoint::ReferenceSet& set : table.sets) {
    if (set.content_xxh3 == content) lengths.push_back(std::to_string(set.seq_len));
    others.push_back(set.name.empty() ? cat("content ", set.content_xxh3) : set.name);
  }
  if (!lengths.empty()) {
    return formatted(
        "the data set was scored with at most {} tokens per side, but this run uses {}",
        joined(lengths, " and "), samples.seq_len());
  }
  return formatted("it was computed for {}", joined(others, ", "));
}

/// Scores of a frozen model. They are computed with each micro-batch or, if the stages lie on
/// several ranks, before the passes of an update.
class ModelScores final : public objective::ReferenceScores {
 public:
  struct Setup {
    const model::Transformer& model;
    std::function<objective::Head()> head;  // head on the last stage
    bool adapters = true;                   // false: compute without adapters
    parallel::ContextGroup context = {};
  };

  ModelScores(Setup setup, const parallel::Mesh& mesh) : setup_(std::move(setup)) {
    if (mesh.size(parallel::Axis::pp) > 1) stages_.emplace(setup_.model, mesh);
  }

  void prepare(std::span<const parallel::Microbatch> micro_batches) override {
    prepared_.clear();
    std::vector<parallel::Microbatch> read_only;
    for (const parallel::Microbatch& batch : micro_batches) read_only.push_back(to_read(batch));
    stages_->forward(read_only, [&](std::size_t i, const at::Tensor& hidden) {
      prepared_[micro_batches[i].tokens.const_data_ptr()] = scores(read_only[i], hidden);
    });
  }

  [[nodiscard]] at::Tensor sums(const parallel::Microbatch& batch) override {
    if (stages_) return prepared_.at(batch.tokens.const_data_ptr());
    const parallel::Microbatch read_only = to_read(batch);
    return scores(read_only, setup_.model.hidden(read_only));
  }

 private:
  [[nodiscard]] parallel::Microbatch to_read(const parallel::Microbatch& batch) const {
    parallel::Microbatch read_only = batch;
    read_only.training = false;
    read_only.adapters = setup_.adapters;
    return read_only;
  }

  [[nodiscard]] at::Tensor scores(const parallel::Microbatch& batch,
                                  const at::Tensor& hidden) const {
    return objective::sequence_scores(batch, hidden, setup_.head(), setup_.context).sums;
  }

  Setup setup_;
  std::optional<FrozenStages> stages_;
  std::map<const void*, at::Tensor> prepared_;  // by the data pointer of the tokens
};

void compare_origin(const checkpoint::ReferenceOrigin& origin, const ReferenceKeys& keys,
                    const TaskContext& context) {
  if (origin.weights_sha256 != context.start_sha256) {
    log::info(formatted(
        "{}.reference = {}: its scores were computed with other weights than the weights that this run starts from",
        keys.section, keys.reference));
  }
  const std::string& precision = context.config.train.precision;
  if (!origin.precision.empty() && origin.precision != precision) {
    log::warn(formatted(
        "{}.reference = {} was computed in {}, but this run uses {}: the margins do not begin at 0",
        keys.section, keys.reference, origin.precision, precision));
  }
}

}  // namespace

std::optional<FrozenModelSpec> reference_model(const ReferenceKeys& keys, const RunConfig& config) {
  const bool is_start = keys.reference.empty();
  if (is_start ? config.lora.on() : checkpoint::is_reference(keys.reference)) return std::nullopt;
  return FrozenModelSpec{is_start ? "base" : "reference", cat(keys.section, ".reference"),
                         keys.reference, is_start};
}

void check_reference(const ReferenceKeys& keys, const RunConfig& config,
                     std::span<const data::SampleSet* const> sets) {
  if (checkpoint::is_reference(keys.reference))
    check_scores(checkpoint::load_reference(keys.reference), {config, keys, sets});
}

std::unique_ptr<objective::ReferenceScores> make_reference(const ReferenceKeys& keys,
                                                           const TaskContext& context) {
  const ops::Path path = ops::path_of(context.config.train.fused_ops);
  const parallel::ContextGroup group = parallel::context_group(context.mesh);
  if (FrozenModel* const frozen = context.frozen; frozen != nullptr) {
    return std::make_unique<ModelScores>(
        ModelScores::Setup{frozen->transformer(), [frozen, path] { return frozen->head(path); },
                           true, group},
        context.mesh);
  }
  if (keys.reference.empty()) {
    model::Transformer& model = context.model;
    const auto head = [&model, path] {
      return objective::head_of(model.registry(), model.head_weight(), model.tensor(), path);
    };
    return std::make_unique<ModelScores>(ModelScores::Setup{model, head, /*adapters=*/false, group},
                                         context.mesh);
  }
  const checkpoint::ReferenceTable table = checkpoint::load_reference(keys.reference);
  const ScoreReader reader{context.config, keys, context.sets};
  check_scores(table, reader);
  if (context.mesh.world().rank() == 0) compare_origin(table.origin, keys, context);
  return stored_reference(table, reader, group);
}

void check_scores(const checkpoint::ReferenceTable& table, const ScoreReader& reader) {
  const ReferenceKeys& keys = reader.keys;
  if (table.origin.score != keys.score) {
    fail_reference(reader, formatted("was computed with {}.score = {}, but this run has {}",
                                     keys.section, table.origin.score, keys.score));
  }
  for (const data::SampleSet* samples : reader.sets) {
    const data::TokenSet& set = samples->set();
    const checkpoint::ReferenceSet* const found =
        table.find(set.content_hash(), samples->seq_len());
    for (std::uint64_t i = 0; i < samples->size(); ++i) {
      const auto document = static_cast<std::int64_t>(samples->pair_document(i));
      if (found != nullptr && found->has(document)) continue;
      const std::string reason =
          found == nullptr ? reason_of(table, *samples) : "that pair was not scored";
      fail_reference(reader,
                     formatted("has no score of pair {} of data set {} (content {}): {}", document,
                               set.directory().string(), set.content_hash(), reason));
    }
  }
}

std::unique_ptr<objective::StoredReference> stored_reference(
    const checkpoint::ReferenceTable& table, const ScoreReader& reader,
    const parallel::ContextGroup& context) {
  std::vector<objective::PairScore> scores;
  const auto add = [&](const checkpoint::ReferenceSet& set, std::size_t row, std::uint64_t key) {
    scores.push_back({key,
                      set.documents[row],
                      {set.sums[2 * row], set.sums[2 * row + 1]},
                      {set.counts[2 * row], set.counts[2 * row + 1]}});
  };
  for (const checkpoint::ReferenceSet& set : table.sets) {
    for (std::size_t row = 0; row < set.keys.size(); ++row) add(set, row, set.keys[row]);
    if (!set.keys.empty()) continue;
    for (const data::SampleSet* samples : reader.sets) {
      if (table.find(samples->set().content_hash(), samples->seq_len()) != &set) continue;
      for (std::uint64_t i = 0; i < samples->size(); ++i) {
        const auto document = static_cast<std::int64_t>(samples->pair_document(i));
        const auto at = std::lower_bound(set.documents.begin(), set.documents.end(), document);
        if (at == set.documents.end() || *at != document) continue;
        add(set, static_cast<std::size_t>(at - set.documents.begin()), samples->pair_key(i));
      }
    }
  }
  return std::make_unique<objective::StoredReference>(scores, reader.keys.reference, context);
}

}  // namespace trireme::train
