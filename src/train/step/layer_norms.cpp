#include "train/step/layer_norms.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/exact_sum.hpp"
#include "core/number.hpp"
#include "optim/block_squares.hpp"
#include "parallel/collectives.hpp"
#include "train/step/bucket_counts.hpp"

namespace trireme::train {
namespace {

constexpr auto kNumWords = static_cast<std::int64_t>(ExactSum::kWords) + 1;
constexpr std::array kKindNames{"grad_norm", "update_norm", "weight_norm"};
constexpr std::array kHistogramNames{"gradients", "weights"};
constexpr std::string_view kLayerUnit = "layer ";

/// Returns the sum of squares of each layer from words [layers, kNumWords].
std::vector<double> sums_of(const at::Tensor& words) {
  const at::Tensor host = words.to(at::kCPU).contiguous();
  const auto* numbers = host.const_data_ptr<std::int64_t>();
  std::vector<double> sums;
  for (std::int64_t layer = 0; layer < host.size(0); ++layer, numbers += kNumWords) {
    ExactSum sum;
    std::copy(numbers, numbers + kNumWords, sum.words().begin());
    sums.push_back(sum.value());
  }
  return sums;
}

}  // namespace

std::vector<std::string> layer_names(std::int64_t num_layers) {
  const std::size_t digits = std::max<std::size_t>(2, cat(num_layers - 1).size());
  std::vector<std::string> names{"embedding"};
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    const std::string number = cat(layer);
    names.push_back("layer_" + std::string(digits - number.size(), '0') + number);
  }
  names.emplace_back("head");
  return names;
}

std::size_t layer_of_unit(const std::string& unit, std::int64_t num_layers) {
  if (unit.starts_with(kLayerUnit)) {
    const auto layer = parse_integer(unit.substr(kLayerUnit.size()));
    if (!layer || *layer < 0 || *layer >= num_layers)
      fail(ErrorKind::internal, "unit {} is not a layer of {}", unit, num_layers);
    return static_cast<std::size_t>(*layer) + 1;
  }
  return unit == "embedding" || unit == "positions" ? 0 : static_cast<std::size_t>(num_layers) + 1;
}

LayerNorms::LayerNorms(const parallel::ParamRegistry& registry, const parallel::Mesh& mesh,
                       std::int64_t num_layers, Measures& measures, std::int64_t every,
                       bool histograms)
    : registry_(registry), measures_(measures), every_(every) {
  if (every == 0) return;
  const parallel::UnitLayout& layout = registry.layout();
  const std::vector<std::string> names = layer_names(num_layers);
  const auto num_names = static_cast<std::int64_t>(names.size());
  const at::Tensor counts = at::zeros({num_names}, at::kLong);
  auto* const count_of = counts.mutable_data_ptr<std::int64_t>();
  // Replicas of local steps differ, so each data rank counts all elements that it updates.
  if (mesh.has_local_steps()) replicas_ = mesh.size(parallel::Axis::data);
  for (const std::size_t unit : layout.trainable_units()) {
    const parallel::IndexRange range =
        mesh.has_local_steps() ? layout.part(unit) : layout.share(unit);
    for (const parallel::ParamSpan& span : layout.owned_spans(unit, range)) {
      const std::string& declared_in = layout.units()[layout.param(span.id).used_with].name;
      const std::size_t layer = layer_of_unit(declared_in, num_layers);
      spans_.push_back({unit, span.begin, span.begin - layout.part(unit).begin, span.count,
                        static_cast<std::int64_t>(layer), registry.spec(span.id).sign_rate == 0});
      count_of[layer] += span.count;
    }
  }
  const at::Tensor all_counts = counts.to(registry.device());
  parallel::all_reduce(mesh.world(), all_counts, comm::ReduceOp::sum, "elements of layers")->wait();
  const at::Tensor has_elements = all_counts.to(at::kCPU).gt(0);
  const auto declare = [&](const char* kind, Combine combine, std::size_t num_buckets) {
    std::vector<std::optional<Measures::Id>> ids(names.size());
    for (std::int64_t layer = 0; layer < num_names; ++layer) {
      const auto index = static_cast<std::size_t>(layer);
      if (has_elements[layer].item<bool>())
        ids[index] = measures.declare({.name = cat(kind, "/", names[index]),
                                       .combine = combine,
                                       .occasional = true,
                                       .num_buckets = num_buckets});
    }
    return ids;
  };
  for (const char* kind : kKindNames) ids_.push_back(declare(kind, Combine::norm, 0));
  if (!histograms) return;
  for (const char* kind : kHistogramNames)
    histogram_ids_.push_back(declare(kind, Combine::histogram, ExponentialBuckets::kNum));
}

void LayerNorms::before_update(double loss_scale) {
  if (!due_) return;
  loss_scale_ = loss_scale;
  const at::NoGradGuard no_grad;
  const auto num_layers = static_cast<std::int64_t>(ids_.front().size());
  const auto zeros = [&](at::Device device, std::int64_t columns = kNumWords) {
    return at::zeros({num_layers, columns}, at::TensorOptions().dtype(at::kLong).device(device));
  };
  const at::Device weights_device =
      spans_.empty() ? registry_.device() : registry_.master_part(spans_.front().unit).device();
  words_ = {zeros(registry_.device()), zeros(weights_device), zeros(weights_device)};
  old_.clear();
  if (has_histograms())
    counts_ = {zeros(registry_.device(), ExponentialBuckets::kNum),
               zeros(weights_device, ExponentialBuckets::kNum)};
  for (const Span& span : spans_) {
    if (span.has_norm) {
      const at::Tensor grads =
          registry_.grad_part(span.unit).narrow(0, span.part_begin, span.count);
      optim::add_block_squares(grads, span.begin, words_[kGrad].select(0, span.layer));
      if (has_histograms())
        count_in_buckets(grads, 1 / loss_scale, counts_[kGradients].select(0, span.layer));
    }
    old_.push_back(registry_.master_part(span.unit).narrow(0, span.part_begin, span.count).clone());
  }
}

void LayerNorms::after_update() {
  if (!due_) return;
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = spans_[i];
    const at::Tensor weights =
        registry_.master_part(span.unit).narrow(0, span.part_begin, span.count);
    optim::add_block_squares(weights, span.begin, words_[kWeight].select(0, span.layer));
    if (has_histograms()) count_in_buckets(weights, 1, counts_[kWeights].select(0, span.layer));
    optim::add_block_squares(old_[i].sub_(weights), span.begin,
                             words_[kUpdate].select(0, span.layer));
    old_[i].reset();
  }
  for (std::size_t kind = 0; kind < kNumKinds; ++kind) {
    const double divisor = replicas_ * (kind == kGrad ? loss_scale_ * loss_scale_ : 1);
    const std::vector<double> sums = sums_of(words_[kind]);
    for (std::size_t layer = 0; layer < sums.size(); ++layer) {
      const std::optional<Measures::Id>& id = ids_[kind][layer];
      if (id) measures_.record(*id, sums[layer] / divisor);
    }
  }
  record_histograms();
  words_.clear();
  old_.clear();
  due_ = false;
}

void LayerNorms::record_histograms() {
  for (std::size_t kind = 0; kind < histogram_ids_.size(); ++kind) {
    const at::Tensor counts = counts_[kind].to(at::kCPU).to(at::kDouble).contiguous();
    const auto* count = counts.const_data_ptr<double>();
    for (const std::optional<Measures::Id>& id : histogram_ids_[kind]) {
      if (id) measures_.record_counts(*id, {count, count + ExponentialBuckets::kNum});
      count += ExponentialBuckets::kNum;
    }
  }
  counts_.clear();
}

}  // namespace trireme::train
