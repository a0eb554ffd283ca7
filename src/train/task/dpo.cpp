#include "train/task/dpo.hpp"

#include "checkpoint/reference/reference_scores.hpp"
#include "core/log.hpp"
#include "objective/preference.hpp"
#include "objective/sequence_scores.hpp"
#include "parallel/context/deal_tokens.hpp"

namespace trireme {
namespace {

constexpr double kDpoLr = 4e-8;  // MiniMind V3's trainer/train_dpo.py

struct DpoConfig {
  PreferenceConfig loss;
  std::string reference;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    PreferenceConfig::fields(self.loss, visit);
    visit("reference", self.reference,
          "a checkpoint, a run's folder, or what `trireme dpo-reference` wrote; empty: the model "
          "that the run starts from");
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

/// The model itself without its adapters.
class BaseReference final : public ReferenceScores {
 public:
  BaseReference(Transformer& model, ops::Path path, const ContextGroup& context)
      : model_(model), path_(path), context_(context) {}

  [[nodiscard]] at::Tensor sums(const Microbatch& batch) override {
    Microbatch base = batch;
    base.training = false;
    base.adapters = false;
    const at::Tensor hidden = model_.hidden(base);
    return sequence_scores(batch, hidden,
                           head_of(model_.registry(), model_.head_weight(), model_.tensor(), path_),
                           context_)
        .sums;
  }

 private:
  Transformer& model_;
  ops::Path path_;
  ContextGroup context_;
};

class Dpo final : public Task {
 public:
  [[nodiscard]] std::vector<std::string_view> set_kinds() const override { return {"dpo"}; }

  [[nodiscard]] std::vector<Field> section() override { return fields_of("dpo", config_); }

  void make_paths_absolute() override { config_.reference = absolute_place(config_.reference); }

  void check(Problems& problems) const override { trireme::check(config_.loss, problems); }

  [[nodiscard]] bool needs_start() const override { return true; }

  [[nodiscard]] std::optional<double> default_lr() const override { return kDpoLr; }

  /// None of adapters beside their own base, nor of scores that were computed before.
  [[nodiscard]] std::optional<FrozenNeed> frozen(const RunConfig& config) const override {
    const bool is_start = config_.reference.empty();
    if (is_start ? config.lora.on() : is_reference(config_.reference)) return std::nullopt;
    return FrozenNeed{is_start ? "base" : "reference", "dpo.reference", config_.reference,
                      is_start};
  }

  [[nodiscard]] bool compares_with_start(const RunConfig& /*config*/) const override {
    return config_.reference.empty();
  }

  void check_files(const RunConfig& config, const SampleStream& data) const override {
    if (is_reference(config_.reference))
      check_reference(config_.reference, {data.content_hash(), config.train.seq_len, {}});
  }

  [[nodiscard]] std::unique_ptr<Objective> make_objective(
      const TaskContext& context) const override {
    const ops::Path path = ops::path_of(context.config.train.fused_ops);
    const ContextGroup group = context_group(context.mesh);
    return std::make_unique<PreferenceObjective>(
        context.model.registry(),
        PreferenceObjective::Setup{context.model.head_weight(), path, context.model.tensor(), group,
                                   config_.loss, context.config.train.seq_len},
        make_reference(context, path, group), context.measures);
  }

 private:
  [[nodiscard]] std::unique_ptr<ReferenceScores> make_reference(const TaskContext& context,
                                                                ops::Path path,
                                                                const ContextGroup& group) const {
    if (context.frozen != nullptr)
      return std::make_unique<LiveReference>(*context.frozen, path, group);
    if (config_.reference.empty())
      return std::make_unique<BaseReference>(context.model, path, group);
    ReferenceTable table = load_reference(
        config_.reference,
        {context.data.content_hash(), context.config.train.seq_len, context.start_sha256});
    const std::string& precision = context.config.train.precision;
    const std::string& made_in = table.origin.precision;
    if (!made_in.empty() && made_in != precision && context.mesh.world().rank() == 0)
      log::warn(formatted(
          "dpo.reference = {} was computed in {}, this run is in {}: margins do not begin at 0",
          config_.reference, made_in, precision));
    return std::make_unique<StoredReference>(std::move(table.sums), std::move(table.counts),
                                             config_.reference, group);
  }

  DpoConfig config_;
};

}  // namespace

std::unique_ptr<Task> make_dpo() {
  return std::make_unique<Dpo>();
}

}  // namespace trireme
