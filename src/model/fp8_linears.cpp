#include "model/fp8_linears.hpp"

#include "model/lora/lora_config.hpp"

namespace trireme::model {
namespace {

bool is_large(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kLeast = 128;
  const auto fits = [](std::int64_t size) { return size >= kLeast && size % kFp8Divisor == 0; };
  return fits(rows) && fits(columns);
}

}  // namespace

std::array<bool, kNumFp8Linears> fp8_linears(const ModelConfig& config) {
  const LinearShapes shapes = block_linears(config);
  const auto of = [&](BlockLinear which) { return shapes.at(static_cast<std::size_t>(which)); };
  using enum BlockLinear;
  const std::int64_t hidden = config.hidden_size;
  const bool has_dense_mlp = !config.moe.in_layer(0);
  return {is_large(of(q).rows + of(k).rows + of(v).rows, hidden),
          is_large(of(o).rows, of(o).columns),
          has_dense_mlp && is_large(of(gate).rows + of(up).rows, hidden),
          has_dense_mlp && is_large(of(down).rows, of(down).columns)};
}

}  // namespace trireme::model
