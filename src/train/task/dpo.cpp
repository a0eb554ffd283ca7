#include <optional>

#include "objective/preference.hpp"
#include "parallel/context/shard_sequence.hpp"
#include "train/task/reference.hpp"
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

  [[nodiscard]] std::optional<FrozenModelSpec> frozen(const RunConfig& config) const override {
    return reference_model(reference(), config);
  }

  [[nodiscard]] bool compares_with_start(const RunConfig& /*config*/) const override {
    return config_.reference.empty();
  }

  void choose_data(data::StreamConfig& stream, const data::EncodeWord& /*encode*/) const override {
    stream.answers_only = config_.loss.score == "answer";
  }

  void check_files(const RunConfig& config,
                   std::span<const data::SampleSet* const> sets) const override {
    check_reference(reference(), config, sets);
  }

  [[nodiscard]] std::unique_ptr<objective::Objective> make_objective(
      const TaskContext& context) const override {
    return std::make_unique<objective::PreferenceObjective>(
        context.model.registry(),
        objective::PreferenceObjective::Setup{
            context.model.head_weight(), ops::path_of(context.config.train.fused_ops),
            context.model.tensor(), parallel::context_group(context.mesh), config_.loss,
            context.config.train.seq_len},
        make_reference(reference(), context), context.measures);
  }

 private:
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
