#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "core/error.hpp"
#include "objective/preference.hpp"
#include "parallel/context/shard_sequence.hpp"
#include "train/task/reference.hpp"
#include "train/task/task.hpp"

namespace trireme::train {
namespace {

constexpr double kDpoLr = 4e-8;  // MiniMind V3's trainer/train_dpo.py

/// The defaults of a loss that differ from those of PreferenceConfig. All have dpo.logprob = mean.
/// The values are those of the papers (objective/preference_loss.hpp).
struct LossDefault {
  std::string_view loss;
  double beta = 0.1;
  double sft_weight = 0;
};

constexpr std::array<LossDefault, 3> kLossDefaults{LossDefault{.loss = "ipo"},
                                                   LossDefault{.loss = "orpo", .sft_weight = 1},
                                                   LossDefault{.loss = "simpo", .beta = 2}};

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

class Dpo final : public Task {
 public:
  [[nodiscard]] std::vector<std::string_view> set_kinds() const override { return {"dpo"}; }

  [[nodiscard]] std::vector<Field> section() override { return fields_of("dpo", config_); }

  void make_paths_absolute() override {
    config_.reference = absolute_path_or_empty(config_.reference);
  }

  /// Sets the keys with a default that depends on dpo.loss. For IPO, sums grow with the length of an
  /// answer, and the loss is the squared distance of their difference from 1 / (2 beta).
  void choose_defaults(config::ConfigSet& keys) override {
    const std::string& loss = config_.loss.loss;
    if (loss != "simpo" && config_.loss.gamma != objective::PreferenceConfig{}.gamma)
      keys.warn(
          formatted("dpo.gamma = {} has no effect: only dpo.loss = simpo uses it, and this "
                    "run has dpo.loss = {}",
                    keys.value("dpo.gamma"), loss));
    const auto* const found = std::ranges::find_if(
        kLossDefaults, [&](const LossDefault& one) { return one.loss == loss; });
    if (found == kLossDefaults.end()) return;
    objective::PreferenceConfig usual;
    usual.logprob = "mean";
    usual.beta = found->beta;
    usual.sft_weight = found->sft_weight;
    std::vector<Field> fields = fields_of("dpo", usual);
    std::erase_if(fields, [&](const Field& field) {
      return !(field.key == "dpo.logprob" ||
               (field.key == "dpo.beta" && found->beta != LossDefault{}.beta) ||
               (field.key == "dpo.sft_weight" && found->sft_weight != LossDefault{}.sft_weight));
    });
    keys.apply_preset(fields, cat("default with dpo.loss = ", loss));
    if (loss == "ipo" && keys.is_set("dpo.logprob") && config_.loss.logprob == "sum") {
      keys.warn(
          "dpo.logprob = sum with dpo.loss = ipo: the loss grows with the square of the answers' "
          "lengths. The default for ipo is dpo.logprob = mean.");
    }
  }

  void check(Problems& problems) const override {
    objective::check(config_.loss, problems);
    if (!has_reference() && !config_.reference.empty())
      problems.add(
          "dpo.reference", config_.reference,
          cat("must be empty with dpo.loss = ", config_.loss.loss, ", which has no reference"));
  }

  [[nodiscard]] bool needs_start() const override { return true; }

  [[nodiscard]] std::optional<double> default_lr() const override { return kDpoLr; }

  [[nodiscard]] std::optional<FrozenModelSpec> frozen(const RunConfig& config) const override {
    return has_reference() ? reference_model(reference(), config) : std::nullopt;
  }

  [[nodiscard]] bool compares_with_start(const RunConfig& /*config*/) const override {
    return has_reference() && config_.reference.empty();
  }

  void choose_data(data::StreamConfig& stream, const data::EncodeWord& /*encode*/) const override {
    stream.answers_only = config_.loss.score == "answer";
  }

  void check_files(const RunConfig& config,
                   std::span<const data::SampleSet* const> sets) const override {
    if (has_reference()) check_reference(reference(), config, sets);
  }

  [[nodiscard]] std::unique_ptr<objective::Objective> make_objective(
      const TaskContext& context) const override {
    return std::make_unique<objective::PreferenceObjective>(
        context.model.registry(),
        objective::PreferenceObjective::Setup{
            context.model.head_weight(), ops::path_of(context.config.train.fused_ops),
            context.model.tensor(), parallel::context_group(context.mesh), config_.loss,
            context.config.train.seq_len},
        has_reference() ? make_reference(reference(), context)
                        : std::make_unique<objective::NoReference>(),
        context.measures);
  }

 private:
  [[nodiscard]] bool has_reference() const { return objective::has_reference(config_.loss.loss); }

  [[nodiscard]] ReferenceKeys reference() const {
    return {"dpo", config_.reference, config_.loss.score};
  }

  DpoConfig config_;
};

}  // namespace

std::unique_ptr<Task> make_dpo() {
  return std::make_unique<Dpo>();
}

}  // namespace trireme::train
