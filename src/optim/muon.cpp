#include "optim/muon.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>

#include "core/by_name.hpp"
#include "optim/group_values.hpp"

namespace trireme::optim {
namespace {

constexpr double kSmallestNorm = 1e-7;  // below it, a norm counts as this number
constexpr std::int64_t kBatchElements = std::int64_t{1} << 24;

/// Returns the factor of the run's learning rate that makes the peak `lr`.
double rate_factor(double lr, const MuonConfig& config) {
  return lr == kRateOfRun ? 1 : lr / config.run.peak_lr;
}

std::vector<ParamRange> matrices_of(const parallel::ParamRegistry& registry,
                                    std::span<const ParamRange> params) {
  std::vector<ParamRange> matrices;
  for (const ParamRange& range : params)
    if (has_matrices(registry.spec(range.id))) matrices.push_back(range);
  return matrices;
}

/// Returns the rate that a group of parameters has by default.
double rate_of(std::string_view group, const MuonConfig& config) {
  if (group == "embed") return config.embed_lr;
  if (group == "head") return config.head_lr;
  if (group == "value") return config.value_lr;
  return config.scalar_lr;
}

/// Returns the parameters that AdamW updates, by group.
std::vector<RatedParams> others_of(const MuonConfig& config,
                                   const parallel::ParamRegistry& registry,
                                   std::span<const ParamRange> params) {
  std::map<std::string_view, RatedParams> groups;
  for (const ParamRange& range : params) {
    const parallel::ParamSpec& spec = registry.spec(range.id);
    if (!has_matrices(spec)) groups[group_of(spec)].params.push_back(range);
  }
  for (auto& [name, group] : groups) group.factor = rate_factor(rate_of(name, config), config);
  for (const GroupValues& own : parse_group_values(config.groups)) {
    const auto found = groups.find(own.group);
    if (found == groups.end()) continue;
    RatedParams& group = found->second;
    if (own.lr) group.factor = *own.lr / config.run.peak_lr;
    group.beta1 = own.beta1;
    group.beta2 = own.beta2;
    group.weight_decay = own.weight_decay;
  }
  std::vector<RatedParams> rated;
  for (auto& [name, group] : groups) rated.push_back(std::move(group));
  return rated;
}

void check_rate(const char* key, double value, Problems& problems) {
  if (value != kRateOfRun && !(value > 0 && value <= kMaxLr))
    problems.add(key, value,
                 formatted("must be more than 0 and at most {}, or -1: optim.lr", kMaxLr));
}

/// Divides the lines of `directions` [count, rows, columns] by the roots of their running mean
/// squares `squares` [count, lines], which it updates. Keeps the norm of each matrix.
at::Tensor normalized_lines(const at::Tensor& directions, const at::Tensor& squares, double beta2) {
  constexpr double kFloor = 1e-10;
  const bool by_row = directions.size(1) >= directions.size(2);
  const int along = by_row ? 2 : 1;
  squares.lerp_(directions.square().mean(along), 1 - beta2);
  const at::Tensor divided = directions * squares.clamp_min(kFloor).rsqrt().unsqueeze(along);
  const auto norm = [](const at::Tensor& x) {
    return at::linalg_vector_norm(x, 2, at::IntArrayRef{1, 2}, /*keepdim=*/true);
  };
  return divided * (norm(directions) / norm(divided).clamp_min(kFloor));
}

at::Tensor norms_of(const at::Tensor& matrices, at::IntArrayRef dims) {
  return at::linalg_vector_norm(matrices, 2, dims, /*keepdim=*/true);
}

/// Scales the rows of `matrices` [count, rows, columns] to the mean norm of the rows of each one.
at::Tensor equalized_rows(const at::Tensor& matrices) {
  const at::Tensor norms = norms_of(matrices, {2});
  return matrices * (norms.mean(1, /*keepdim=*/true) / norms.clamp_min(kSmallestNorm));
}

/// Scales `matrices` [count, rows, columns] to the norm of an orthogonal matrix.
at::Tensor renormalized(const at::Tensor& matrices) {
  const auto side = static_cast<double>(std::min(matrices.size(1), matrices.size(2)));
  return matrices * (std::sqrt(side) / norms_of(matrices, {1, 2}).clamp_min(kSmallestNorm));
}

constexpr std::array<const char*, 3> kDecaySchedules{"constant", "linear", "cosine"};

void check_momentum_final(const MuonConfig& config, Problems& problems) {
  if (config.momentum_final == kNoMomentumDecay) return;
  if (!(config.momentum_final >= 0 && config.momentum_final < 1))
    problems.add("optim.momentum_final", config.momentum_final,
                 "must be in [0, 1), or -1: optim.momentum_end");
  if (!config.run.wsd)
    problems.add("optim.momentum_final", config.momentum_final, "needs optim.schedule = wsd");
}

}  // namespace

double momentum_of(const MuonConfig& config, std::int64_t update) {
  const auto done = static_cast<double>(update - 1);
  if (update <= config.momentum_warmup) {
    const double t = done / static_cast<double>(config.momentum_warmup);
    return (1 - t) * config.momentum_start + t * config.momentum_end;
  }
  const MuonConfig::Run& run = config.run;
  if (config.momentum_final == kNoMomentumDecay || update <= run.decay_begin ||
      run.steps <= run.decay_begin)
    return config.momentum_end;
  const double t = (done - static_cast<double>(run.decay_begin)) /
                   static_cast<double>(run.steps - run.decay_begin);
  const double part = std::min(t, 1.0);
  return (1 - part) * config.momentum_end + part * config.momentum_final;
}

double weight_decay_of(const MuonConfig& config, std::int64_t update) {
  const double decay = config.adamw.weight_decay;
  if (config.run.steps == 0 || config.decay_schedule == "constant") return decay;
  const double t =
      std::min(static_cast<double>(update - 1) / static_cast<double>(config.run.steps), 1.0);
  if (config.decay_schedule == "linear") return decay * (1 - t);
  return decay * 0.5 * (1 + std::cos(std::numbers::pi * t));
}

void check(const MuonConfig& config, Problems& problems) {
  check(config.adamw, problems);
  const std::vector<std::string> methods(kOrthogonalizeNames.begin(), kOrthogonalizeNames.end());
  problems.one_of("optim.orthogonalize", config.orthogonalize, methods);
  check_rate("optim.matrix_lr", config.matrix_lr, problems);
  check_rate("optim.embed_lr", config.embed_lr, problems);
  check_rate("optim.head_lr", config.head_lr, problems);
  check_rate("optim.value_lr", config.value_lr, problems);
  check_rate("optim.scalar_lr", config.scalar_lr, problems);
  check_fraction("optim.momentum_start", config.momentum_start, problems);
  check_fraction("optim.momentum_end", config.momentum_end, problems);
  if (config.momentum_warmup < 0)
    problems.add("optim.momentum_warmup", config.momentum_warmup, "must be 0 or more");
  check_momentum_final(config, problems);
  const std::vector<std::string> schedules(kDecaySchedules.begin(), kDecaySchedules.end());
  problems.one_of("optim.decay_schedule", config.decay_schedule, schedules);
  check_group_values(config.groups, problems);
}

void check(const NorMuonConfig& config, Problems& problems) {
  check(static_cast<const MuonConfig&>(config), problems);
  check_fraction("optim.matrix_beta2", config.matrix_beta2, problems);
}

MatrixOptimizer::MatrixOptimizer(const MuonConfig& config, std::optional<double> matrix_beta2,
                                 std::string slot_prefix, parallel::ParamRegistry& registry,
                                 std::span<const ParamRange> params)
    : config_(config),
      matrix_beta2_(matrix_beta2),
      slot_prefix_(std::move(slot_prefix)),
      registry_(registry),
      method_(by_name<Orthogonalize>(kOrthogonalizeNames, config.orthogonalize)),
      matrices_(matrices_of(registry, params)),
      others_(config.adamw, registry, others_of(config, registry, params)),
      momentum_(others_.slots()[0].flat),
      squares_(others_.slots()[1].flat) {
  const parallel::UnitLayout& layout = registry.layout();
  const StageGrids grids{layout.dense_grid(), layout.expert_grid(), layout.persist()};
  add_exchange(grids, /*of_experts=*/false);
  if (grids.experts) add_exchange(grids, /*of_experts=*/true);
}

void MatrixOptimizer::add_exchange(const StageGrids& grids, bool of_experts) {
  Exchange& exchange =
      exchanges_.emplace_back(Exchange{MatrixExchange(registry_, grids, of_experts), {}});
  std::map<std::pair<std::int64_t, std::int64_t>, Batch> by_shape;
  for (std::size_t i = 0; i < exchange.matrices.num_owned(); ++i) {
    const Matrix& one = exchange.matrices.owned(i);
    Batch& batch = by_shape[{one.rows, one.columns}];
    batch.push_back(i);
    if (static_cast<std::int64_t>(batch.size() + 1) * one.rows * one.columns > kBatchElements)
      exchange.batches.push_back(std::exchange(batch, {}));
  }
  for (auto& [shape, batch] : by_shape)
    if (!batch.empty()) exchange.batches.push_back(std::move(batch));
}

void MatrixOptimizer::step(std::int64_t update, double lr) {
  const at::NoGradGuard no_grad;
  others_.step(update, lr);
  const UpdateValues values{lr * rate_factor(config_.matrix_lr, config_),
                            momentum_of(config_, update), weight_decay_of(config_, update)};
  for (const ParamRange& range : matrices_)
    range.elements.state(registry_, momentum_)
        .lerp_(range.elements.grads(registry_), 1 - values.momentum);
  for (const Exchange& exchange : exchanges_) this->update(exchange, values);
}

at::Tensor MatrixOptimizer::orthogonal(const at::Tensor& matrices) const {
  // Both methods tolerate the rounding of bf16, in which GPUs are several times faster.
  const bool in_bf16 =
      matrices.is_cuda() && registry_.dtypes().compute == at::kBFloat16 &&
      (method_ == Orthogonalize::polar_express || method_ == Orthogonalize::newton_schulz);
  const at::Tensor x = config_.row_equalize ? equalized_rows(matrices) : matrices;
  const at::Tensor directions =
      orthogonalized(in_bf16 ? x.to(at::kBFloat16) : x, method_).to(matrices.scalar_type());
  return config_.renormalize ? renormalized(directions) : directions;
}

void MatrixOptimizer::update(const Exchange& exchange, const UpdateValues& values) {
  const MatrixExchange& matrices = exchange.matrices;
  if (!matrices.any()) return;
  const at::Tensor sent = matrices.make_sent();
  for (const MatrixRun& run : matrices.sent_runs()) {
    // Nesterov: the gradient also moves towards the momentum that contains it.
    sent.narrow(0, run.begin, run.elements.count)
        .copy_(run.elements.grads(registry_).lerp(run.elements.state(registry_, momentum_),
                                                  values.momentum));
  }
  const at::Tensor gathered = matrices.gather(sent);
  std::vector<at::Tensor> squares;
  if (matrix_beta2_) squares = matrices.gather_lines(squares_);
  const at::Tensor scattered = matrices.make_scattered(gathered);
  for (const Batch& batch : exchange.batches) {
    std::vector<at::Tensor> whole;
    for (const std::size_t i : batch) whole.push_back(matrices.whole(gathered, i));
    at::Tensor directions = orthogonal(at::stack(whole));
    if (matrix_beta2_) {
      std::vector<at::Tensor> lines;
      for (const std::size_t i : batch) lines.push_back(squares[i]);
      const at::Tensor together = at::stack(lines);
      directions = normalized_lines(directions, together, *matrix_beta2_);
      for (std::size_t k = 0; k < batch.size(); ++k)
        squares[batch[k]] = together.select(0, static_cast<std::int64_t>(k));
    }
    for (std::size_t k = 0; k < batch.size(); ++k)
      matrices.put(directions.select(0, static_cast<std::int64_t>(k)), batch[k], scattered);
  }
  const at::Tensor returned = matrices.scatter(scattered);
  if (matrix_beta2_) matrices.scatter_lines(squares, squares_);
  for (const MatrixRun& run : matrices.returned_runs())
    apply(run, returned.narrow(0, run.begin, run.elements.count), values);
}

void MatrixOptimizer::apply(const MatrixRun& run, const at::Tensor& direction,
                            const UpdateValues& values) const {
  const parallel::ParamSpec& spec = registry_.spec(run.id);
  const at::Tensor weights = run.elements.weights(registry_);
  const at::Tensor step = direction.to(weights.device());
  const double decay = spec.decay ? values.lr * values.weight_decay : 0;
  if (decay > 0 && config_.cautious) {
    weights.mul_(step.mul(weights).ge_(0).mul_(-decay).add_(1));
  } else if (decay > 0) {
    weights.mul_(1 - decay);
  }
  const auto rows = static_cast<double>(spec.shape[spec.shape.size() - 2]);
  const auto columns = static_cast<double>(spec.shape.back());
  weights.sub_(step, values.lr * std::sqrt(std::max(1.0, rows / columns)));
}

std::vector<OptimizerSlot> MatrixOptimizer::slots() {
  return {{slot_prefix_ + "_first", momentum_}, {slot_prefix_ + "_second", squares_}};
}

std::vector<comm::Communicator*> MatrixOptimizer::groups() const {
  std::vector<comm::Communicator*> groups;
  for (const Exchange& exchange : exchanges_)
    if (comm::Communicator* group = exchange.matrices.group()) groups.push_back(group);
  return groups;
}

}  // namespace trireme::optim
