#include "optim/muon.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/by_name.hpp"

namespace trireme::optim {
namespace {

constexpr std::int64_t kBatchElements = std::int64_t{1} << 24;

/// Returns the factor of the run's learning rate that makes the peak `lr`.
double rate_factor(double lr, const MuonConfig& config) {
  return lr == kRateOfRun ? 1 : lr / config.peak_lr;
}

std::vector<ParamRange> matrices_of(const parallel::ParamRegistry& registry,
                                    std::span<const ParamRange> params) {
  std::vector<ParamRange> matrices;
  for (const ParamRange& range : params)
    if (has_matrices(registry.spec(range.id))) matrices.push_back(range);
  return matrices;
}

/// Returns the parameters that AdamW updates, by rate.
std::vector<RatedParams> others_of(const MuonConfig& config,
                                   const parallel::ParamRegistry& registry,
                                   std::span<const ParamRange> params) {
  using Table = parallel::ParamSpec::Table;
  std::map<Table, RatedParams> groups{
      {Table::none, {{}, rate_factor(config.scalar_lr, config)}},
      {Table::embedding, {{}, rate_factor(config.embed_lr, config)}},
      {Table::head, {{}, rate_factor(config.head_lr, config)}},
      {Table::value, {{}, rate_factor(config.value_lr, config)}}};
  for (const ParamRange& range : params) {
    const parallel::ParamSpec& spec = registry.spec(range.id);
    if (!has_matrices(spec)) groups[spec.table].params.push_back(range);
  }
  std::vector<RatedParams> rated;
  for (auto& [table, group] : groups) rated.push_back(std::move(group));
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

}  // namespace

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
  const double warm = config_.momentum_warmup == 0
                          ? 1
                          : std::min(1.0, static_cast<double>(update - 1) /
                                              static_cast<double>(config_.momentum_warmup));
  const double momentum = (1 - warm) * config_.momentum_start + warm * config_.momentum_end;
  for (const ParamRange& range : matrices_)
    range.elements.state(registry_, momentum_).lerp_(range.elements.grads(registry_), 1 - momentum);
  for (const Exchange& exchange : exchanges_)
    this->update(exchange, momentum, lr * rate_factor(config_.matrix_lr, config_));
}

at::Tensor MatrixOptimizer::orthogonal(const at::Tensor& matrices) const {
  // Both methods tolerate the rounding of bf16, in which GPUs are several times faster.
  const bool in_bf16 =
      matrices.is_cuda() && registry_.dtypes().compute == at::kBFloat16 &&
      (method_ == Orthogonalize::polar_express || method_ == Orthogonalize::newton_schulz);
  if (!in_bf16) return orthogonalized(matrices, method_);
  return orthogonalized(matrices.to(at::kBFloat16), method_).to(matrices.scalar_type());
}

void MatrixOptimizer::update(const Exchange& exchange, double momentum, double lr) {
  const MatrixExchange& matrices = exchange.matrices;
  if (!matrices.any()) return;
  const at::Tensor sent = matrices.make_sent();
  for (const MatrixRun& run : matrices.sent_runs()) {
    // Nesterov: the gradient also moves towards the momentum that contains it.
    sent.narrow(0, run.begin, run.elements.count)
        .copy_(
            run.elements.grads(registry_).lerp(run.elements.state(registry_, momentum_), momentum));
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
    apply(run, returned.narrow(0, run.begin, run.elements.count), lr);
}

void MatrixOptimizer::apply(const MatrixRun& run, const at::Tensor& direction, double lr) const {
  const parallel::ParamSpec& spec = registry_.spec(run.id);
  const at::Tensor weights = run.elements.weights(registry_);
  const at::Tensor step = direction.to(weights.device());
  const double decay = spec.decay ? lr * config_.adamw.weight_decay : 0;
  if (decay > 0 && config_.cautious) {
    weights.mul_(step.mul(weights).ge_(0).mul_(-decay).add_(1));
  } else if (decay > 0) {
    weights.mul_(1 - decay);
  }
  const auto rows = static_cast<double>(spec.shape[spec.shape.size() - 2]);
  const auto columns = static_cast<double>(spec.shape.back());
  weights.sub_(step, lr * std::sqrt(std::max(1.0, rows / columns)));
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
