#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/log.hpp"
#include "objective/preference.hpp"
#include "objective/sequence_scores.hpp"
#include "parallel/context/shard_sequence.hpp"
#include "train/task/stored_scores.hpp"
#include "train/task/task.hpp"

namespace trireme::train {
namespace {

constexpr double kDpoLr = 4e-8;  // MiniMind V3's trainer/train_dpo.py

struct DpoConfig {
  objective::PreferenceConfig loss;
  std::string reference;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    objective::PreferenceConfig::fields(self.loss, visit);
    visit(
        "reference", self.reference,
        "reference model (checkpoint, run or Hugging Face directory, also LoRA) or output of `trireme dpo-reference`; empty: the model that the run starts from");
  }
};

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

class Dpo final : public Task {
 public:
  [[nodiscard]] std::vector<std::string_view> set_kinds() const override { return {"dpo"}; }

  [[nodiscard]] std::vector<Field> section() override { return fields_of("dpo", config_); }

  void make_paths_absolute() override {
    config_.reference = absolute_path_or_empty(config_.reference);
  }

  /// For IPO, sets dpo.logprob to "mean": sums grow with the length of an answer, and the loss is
  /// the squared distance of their difference from 1 / (2 beta).
  void choose_defaults(config::ConfigSet& keys) override {
    if (config_.loss.loss != "ipo") return;
    objective::PreferenceConfig ipo;
    ipo.logprob = "mean";
    std::vector<Field> fields = fields_of("dpo", ipo);
    std::erase_if(fields, [](const Field& field) { return field.key != "dpo.logprob"; });
    keys.apply_preset(fields, "default with dpo.loss = ipo");
    if (keys.is_set("dpo.logprob") && config_.loss.logprob == "sum") {
      keys.warn(
          "dpo.logprob = sum with dpo.loss = ipo: the loss grows with the square of the answers' "
          "lengths. The default for ipo is dpo.logprob = mean.");
    }
  }

  void check(Problems& problems) const override { objective::check(config_.loss, problems); }

  [[nodiscard]] bool needs_start() const override { return true; }

  [[nodiscard]] std::optional<double> default_lr() const override { return kDpoLr; }

  /// No frozen model is needed for adapters with their own base, or for precomputed scores.
  [[nodiscard]] std::optional<FrozenModelSpec> frozen(const RunConfig& config) const override {
    const bool is_start = config_.reference.empty();
    if (is_start ? config.lora.on() : checkpoint::is_reference(config_.reference))
      return std::nullopt;
    return FrozenModelSpec{is_start ? "base" : "reference", "dpo.reference", config_.reference,
                           is_start};
  }

  [[nodiscard]] bool compares_with_start(const RunConfig& /*config*/) const override {
    return config_.reference.empty();
  }

  void choose_data(data::StreamConfig& stream, const data::EncodeWord& /*encode*/) const override {
    stream.answers_only = config_.loss.score == "answer";
  }

  void check_files(const RunConfig& config,
                   std::span<const data::SampleSet* const> sets) const override {
    if (checkpoint::is_reference(config_.reference))
      check_scores(checkpoint::load_reference(config_.reference), reader(config, sets));
  }

  [[nodiscard]] std::unique_ptr<objective::Objective> make_objective(
      const TaskContext& context) const override {
    const ops::Path path = ops::path_of(context.config.train.fused_ops);
    const parallel::ContextGroup group = parallel::context_group(context.mesh);
    return std::make_unique<objective::PreferenceObjective>(
        context.model.registry(),
        objective::PreferenceObjective::Setup{context.model.head_weight(), path,
                                              context.model.tensor(), group, config_.loss,
                                              context.config.train.seq_len},
        make_reference(context, path, group), context.measures);
  }

 private:
  [[nodiscard]] ScoreReader reader(const RunConfig& config,
                                   std::span<const data::SampleSet* const> sets) const {
    return {config, config_.reference, config_.loss.score, sets};
  }

  [[nodiscard]] std::unique_ptr<objective::ReferenceScores> make_reference(
      const TaskContext& context, ops::Path path, const parallel::ContextGroup& group) const {
    if (FrozenModel* const frozen = context.frozen; frozen != nullptr) {
      return std::make_unique<ModelScores>(
          ModelScores::Setup{frozen->transformer(), [frozen, path] { return frozen->head(path); },
                             true, group},
          context.mesh);
    }
    if (config_.reference.empty()) {
      model::Transformer& model = context.model;
      const auto head = [&model, path] {
        return objective::head_of(model.registry(), model.head_weight(), model.tensor(), path);
      };
      return std::make_unique<ModelScores>(
          ModelScores::Setup{model, head, /*adapters=*/false, group}, context.mesh);
    }
    const checkpoint::ReferenceTable table = checkpoint::load_reference(config_.reference);
    const ScoreReader scores = reader(context.config, context.sets);
    check_scores(table, scores);
    if (context.mesh.world().rank() == 0) compare_origin(table.origin, context);
    return stored_reference(table, scores, group);
  }

  void compare_origin(const checkpoint::ReferenceOrigin& origin, const TaskContext& context) const {
    if (origin.weights_sha256 != context.start_sha256) {
      log::info(formatted(
          "dpo.reference = {}: its scores were computed with other weights than the weights that this run starts from",
          config_.reference));
    }
    const std::string& precision = context.config.train.precision;
    if (!origin.precision.empty() && origin.precision != precision) {
      log::warn(formatted(
          "dpo.reference = {} was computed in {}, but this run uses {}: the margins do not begin at 0",
          config_.reference, origin.precision, precision));
    }
  }

  DpoConfig config_;
};

}  // namespace

std::unique_ptr<Task> make_dpo() {
  return std::make_unique<Dpo>();
}

}  // namespace trireme::train
