#include "objective/kto.hpp"

#include <optional>
#include <string>

#include "parallel/context/shard_sequence.hpp"
#include "train/task/reference.hpp"
#include "train/task/task.hpp"

namespace trireme::train {
namespace {

constexpr double kKtoLr = 1e-6;  // TRL's KTOConfig

/// Every value of dpo.score means the same targets, because only answers are targets.
const std::string kAnyScore;

struct KtoKeys {
  objective::KtoConfig loss;
  std::string reference;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    objective::KtoConfig::fields(self.loss, visit);
    visit(
        "reference", self.reference,
        "reference model (checkpoint, run or Hugging Face directory, also LoRA) or output of `trireme dpo-reference`; empty: the model that the run starts from");
  }
};

class Kto final : public Task {
 public:
  [[nodiscard]] std::vector<std::string_view> set_kinds() const override { return {"kto"}; }

  [[nodiscard]] std::vector<Field> section() override { return fields_of("kto", keys_); }

  void make_paths_absolute() override { keys_.reference = absolute_path_or_empty(keys_.reference); }

  void check(Problems& problems) const override { objective::check(keys_.loss, problems); }

  [[nodiscard]] bool needs_start() const override { return true; }

  [[nodiscard]] std::optional<double> default_lr() const override { return kKtoLr; }

  [[nodiscard]] std::optional<FrozenModelSpec> frozen(const RunConfig& config) const override {
    return reference_model(reference(), config);
  }

  [[nodiscard]] bool compares_with_start(const RunConfig& /*config*/) const override {
    return keys_.reference.empty();
  }

  void check_files(const RunConfig& config,
                   std::span<const data::SampleSet* const> sets) const override {
    check_reference(reference(), config, sets);
  }

  [[nodiscard]] std::unique_ptr<objective::Objective> make_objective(
      const TaskContext& context) const override {
    const parallel::Mesh& mesh = context.mesh;
    return std::make_unique<objective::KtoObjective>(
        context.model.registry(),
        objective::KtoObjective::Setup{
            .head = context.model.head_weight(),
            .path = ops::path_of(context.config.train.fused_ops),
            .tensor = context.model.tensor(),
            .context = parallel::context_group(mesh),
            .config = keys_.loss,
            .update_groups = {&mesh.group(parallel::Axis::data), &mesh.group(parallel::Axis::pp)},
            .counts_answers = mesh.rank(parallel::Axis::pp) == 0},
        make_own_scores(context), make_reference(reference(), context), context.measures);
  }

 private:
  [[nodiscard]] ReferenceKeys reference() const { return {"kto", keys_.reference, kAnyScore}; }

  KtoKeys keys_;
};

}  // namespace

std::unique_ptr<Task> make_kto() {
  return std::make_unique<Kto>();
}

}  // namespace trireme::train
