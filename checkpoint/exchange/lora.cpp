#include "checkpoint/exchange/lora.hpp"

#include <algorithm>

#include "checkpoint/exchange/convert.hpp"
#include "checkpoint/format/model_values.hpp"
#include "core/error.hpp"

namespace trireme::checkpoint {
namespace {

std::string half_name(const LoraAdapter& adapter, char half) {
  return formatted("param/{}.lora_{}.weight", adapter.module, half);
}

std::vector<double> read_f64(const Checkpoint& checkpoint, const std::string& name) {
  const DType saved = checkpoint.manifest().tensors.at(name).dtype;
  const std::vector<std::byte> bytes = checkpoint.read_logical(name);
  std::vector<double> values(bytes.size() / size_of(saved));
  convert_floats(saved, bytes, DType::f64, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace

bool holds_adapters(const Checkpoint& checkpoint) {
  return holds_adapters(checkpoint.manifest().values);
}

std::filesystem::path base_checkpoint_path(const Checkpoint& adapters) {
  return adapters.path().parent_path().parent_path() / "base";
}

model::LoraConfig lora_of(const Checkpoint& checkpoint) {
  return lora_from_values(checkpoint.manifest().values, checkpoint.path().string());
}

std::vector<LoraAdapter> lora_adapters(const model::LoraConfig& lora,
                                       const model::ModelConfig& model) {
  const model::LinearShapes linears = model::block_linears(model);
  const auto targeted = model::lora_targets(lora, model);
  std::vector<LoraAdapter> adapters;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    for (std::size_t i = 0; i < linears.size(); ++i) {
      if (!targeted[i]) continue;
      adapters.push_back({formatted("model.layers.{}.{}", layer, linears[i].module),
                          linears[i].columns, linears[i].rows});
    }
  }
  return adapters;
}

std::vector<NamedShape> adapter_tensors(const std::vector<LoraAdapter>& adapters,
                                        std::int64_t rank) {
  std::vector<NamedShape> tensors;
  for (const LoraAdapter& one : adapters) {
    tensors.push_back({cat(one.module, ".lora_A.weight"), {rank, one.in}});
    tensors.push_back({cat(one.module, ".lora_B.weight"), {one.out, rank}});
  }
  return tensors;
}

void check_adapters(const Checkpoint& checkpoint, const std::vector<LoraAdapter>& adapters,
                    std::int64_t rank) {
  const std::string problems =
      tensor_problems(checkpoint.manifest().tensors, adapter_tensors(adapters, rank), "param/");
  if (!problems.empty())
    fail(ErrorKind::data,
         "{}: adapters of rank {} do not fit lora.targets and the model's shape:{}",
         checkpoint.path().string(), rank, problems);
}

std::vector<double> merged_weight(const Checkpoint& adapters, const Checkpoint& base,
                                  const LoraAdapter& adapter, const model::LoraConfig& lora) {
  std::vector<double> weight = read_f64(base, formatted("param/{}.weight", adapter.module));
  const std::vector<double> a = read_f64(adapters, half_name(adapter, 'A'));  // [rank, in]
  const std::vector<double> b = read_f64(adapters, half_name(adapter, 'B'));  // [out, rank]
  const auto in = static_cast<std::size_t>(adapter.in);
  const auto rank = static_cast<std::size_t>(lora.rank);
  const double scale = lora.scale();
  std::vector<double> row(in);
  for (std::size_t o = 0; o < static_cast<std::size_t>(adapter.out); ++o) {
    std::fill(row.begin(), row.end(), 0.0);
    for (std::size_t r = 0; r < rank; ++r) {
      const double factor = b[o * rank + r];
      for (std::size_t i = 0; i < in; ++i) row[i] += factor * a[r * in + i];
    }
    for (std::size_t i = 0; i < in; ++i) weight[o * in + i] += scale * row[i];
  }
  return weight;
}

}  // namespace trireme::checkpoint
