#include "train/task/dpo.hpp"

#include <filesystem>

#include "objective/preference.hpp"
#include "objective/sequence_scores.hpp"
#include "parallel/context/deal_tokens.hpp"

namespace trireme {
namespace {

constexpr double kLr = 4e-8;  // MiniMind V3's trainer/train_dpo.py

struct DpoConfig {
  PreferenceConfig loss;
  std::string reference;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    PreferenceConfig::fields(self.loss, visit);
    visit("reference", self.reference,
          "a checkpoint, a run's folder, or a file that `trireme dpo-reference` wrote; empty: the "
          "model that the run starts from");
  }
};

/// The frozen model's scores, computed beside each micro-batch.
class LiveReference final : public ReferenceScores {
 public:
  LiveReference(FrozenModel& model, ops::Path path, const ContextGroup& context)
      : model_(model), path_(path), context_(context) {}

  [[nodiscard]] at::Tensor sums(const Microbatch& batch) override {
    const at::Tensor hidden = model_.hidden(batch);
    return sequence_scores(batch, hidden, model_.head(path_), context_).sums;
  }

 private:
  FrozenModel& model_;
  ops::Path path_;
  ContextGroup context_;
};

class Dpo final : public Task {
 public:
  [[nodiscard]] std::vector<std::string_view> set_kinds() const override { return {"dpo"}; }

  [[nodiscard]] std::vector<Field> section() override { return fields_of("dpo", config_); }

  void check(Problems& problems) const override { trireme::check(config_.loss, problems); }

  [[nodiscard]] bool needs_start() const override { return true; }

  [[nodiscard]] std::optional<double> default_lr() const override { return kLr; }

  [[nodiscard]] std::optional<FrozenNeed> frozen() const override {
    if (std::filesystem::is_regular_file(config_.reference)) return std::nullopt;
    const bool is_start = config_.reference.empty();
    return FrozenNeed{is_start ? "base" : "reference", "dpo.reference", config_.reference,
                      is_start};
  }

  [[nodiscard]] std::unique_ptr<Objective> make_objective(
      const TaskContext& context) const override {
    const ops::Path path = ops::path_of(context.config.train.fused_ops);
    const ContextGroup group = context_group(context.mesh);
    return std::make_unique<PreferenceObjective>(
        context.model.registry(),
        PreferenceObjective::Setup{context.model.head_weight(), path, context.model.tensor(), group,
                                   config_.loss, context.config.train.seq_len},
        std::make_unique<LiveReference>(*context.frozen, path, group), context.measures);
  }

 private:
  DpoConfig config_;
};

}  // namespace

std::unique_ptr<Task> make_dpo() {
  return std::make_unique<Dpo>();
}

}  // namespace trireme
