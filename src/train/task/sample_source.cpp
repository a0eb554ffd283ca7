#include "train/task/sample_source.hpp"

#include <memory>
#include <optional>
#include <set>

#include "core/join.hpp"
#include "data/loader.hpp"
#include "train/step/update_targets.hpp"
#include "train/task/task.hpp"

namespace trireme::train {
namespace {

/// The samples of the data sets in the order of their global index, which is the saved state.
class OrderedSamples final : public SampleSource {
 public:
  explicit OrderedSamples(const SourceContext& context) : context_(context) {}

  void restore(const RunValues& saved, const std::string& checkpoint) override {
    next_sample_ = saved_next_sample(saved);
    context_.stream.check_state(saved.stream, next_sample_, checkpoint);
  }

  void start_at(std::int64_t step) override { steps_done_ = step; }

  void put_state(std::int64_t next_sample, RunValues& values) override {
    values.stream = context_.stream.state(next_sample);
    values.plan_hash = context_.stream.plan_hash();
  }

  UpdateSamples next() override {
    if (!loader_) start();
    UpdateSamples samples;
    const double waited_before_s = loader_->wait_s();
    const std::int64_t micro_steps = loader_->micro_steps();
    for (std::int64_t i = 0; i < micro_steps; ++i) samples.batches.push_back(loader_->next());
    samples.waited_s = loader_->wait_s() - waited_before_s;
    targets_->of(samples.batches);
    samples.next_sample = loader_->next_sample();
    return samples;
  }

  void prepare_next() override { targets_->begin_next(); }

  [[nodiscard]] std::string origin(std::int64_t first, std::int64_t end) const override {
    std::set<std::string> sets;
    for (std::int64_t i = first; i < end; ++i)
      sets.insert(context_.stream.locate(i).samples->set().directory().string());
    return joined(sets, ", ");
  }

  [[nodiscard]] std::span<const data::SampleSet> validation() const override {
    return context_.validation;
  }

 private:
  void start() {
    const TrainConfig& train = context_.config.train;
    const parallel::Mesh& mesh = context_.mesh;
    data::LoaderConfig shares{train.micro_batch, train.global_batch, mesh.rank(parallel::Axis::dp),
                              mesh.size(parallel::Axis::dp), next_sample_};
    shares.phases = context_.config.batch_phases().after(steps_done_);
    if (train.num_samples > 0) shares.end_sample = train.num_samples;
    loader_.emplace(context_.stream, shares);
    targets_.emplace(*loader_, context_.world, mesh);
  }

  SourceContext context_;
  std::int64_t next_sample_ = 0;  // first sample of the first update
  std::int64_t steps_done_ = 0;   // steps before the first update
  std::optional<data::DataLoader> loader_;
  std::optional<UpdateTargets> targets_;
};

}  // namespace

std::unique_ptr<SampleSource> Task::make_source(const SourceContext& context) const {
  return std::make_unique<OrderedSamples>(context);
}

}  // namespace trireme::train
