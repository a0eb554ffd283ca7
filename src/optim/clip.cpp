#include "optim/clip.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace trireme {
namespace {

/// Eight partial sums, added in a fixed order: vectorises, and gives the same bits on every run.
template <class T>
double sum_of_squares(std::span<const T> values) {
  constexpr std::size_t kLanes = 8;
  double lanes[kLanes] = {};
  const std::size_t whole = values.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  for (std::size_t i = whole; i < values.size(); ++i)
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

template <class T>
double host_squares(const at::Tensor& grad) {
  return sum_of_squares<T>({grad.const_data_ptr<T>(), static_cast<std::size_t>(grad.numel())});
}

double plain_squares(const at::Tensor& grad) {
  const at::Tensor wide = grad.to(at::kDouble);
  return wide.mul(wide).sum().item<double>();
}

struct SquaresRow {
  at::DeviceType device;
  at::ScalarType dtype;
  double (*sum)(const at::Tensor& grad);
};

/// None that fits: the plain one.
constexpr std::array kSquares{
    SquaresRow{at::kCPU, at::kFloat, host_squares<float>},
    SquaresRow{at::kCPU, at::kDouble, host_squares<double>},
};

double squares_of(const at::Tensor& grad) {
  const auto* const found =
      std::find_if(kSquares.begin(), kSquares.end(), [&](const SquaresRow& row) {
        return row.device == grad.device().type() && row.dtype == grad.scalar_type();
      });
  return found == kSquares.end() ? plain_squares(grad) : found->sum(grad);
}

}  // namespace

std::vector<double> grad_squares(const ParamRegistry& registry) {
  std::vector<double> squares(registry.size());
  for (ParamId id = 0; id < registry.size(); ++id) squares[id] = squares_of(registry.main_grad(id));
  return squares;
}

double global_norm(const std::vector<double>& squares) {
  double sum = 0;
  for (const double square : squares) sum += square;
  return std::sqrt(sum);
}

double clip_factor(double norm, double clip_norm) {
  return clip_norm > 0 ? std::min(1.0, clip_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace trireme
