#include "checkpoint/exchange/whole_weights.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/exchange/convert.hpp"
#include "checkpoint/exchange/hf_tensors.hpp"
#include "checkpoint/exchange/lora.hpp"
#include "core/error.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kParam = "param/";

/// Throws Error(data) if the names and shapes of the parameters differ from those of the model.
void check_parameters(const Checkpoint& checkpoint, const std::vector<NamedShape>& tensors) {
  const std::string problems = tensor_problems(checkpoint.manifest().tensors, tensors, kParam);
  if (!problems.empty())
    fail(ErrorKind::data, "{}: parameters do not fit the model's shape:{}",
         checkpoint.path().string(), problems);
}

/// Reads parameters on demand and caches the last two: all experts of a layer are slices of the
/// same two parameters.
class Parameters {
 public:
  explicit Parameters(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  const std::vector<std::byte>& read(const std::string& name) {
    const auto found = read_.find(name);
    if (found != read_.end()) return found->second;
    if (read_.size() == 2) read_.clear();
    return read_[name] = checkpoint_.read_logical(name);
  }

 private:
  const Checkpoint& checkpoint_;
  std::map<std::string, std::vector<std::byte>> read_;
};

/// Returns the weights of a checkpoint that contains all parameters.
std::vector<SafetensorsSource> own_weights(const Checkpoint& checkpoint,
                                           const model::ModelConfig& config, DType dtype) {
  check_parameters(checkpoint, model_tensors(config));
  const auto parameters = std::make_shared<Parameters>(checkpoint);
  std::vector<SafetensorsSource> sources;
  for (const HfTensor& tensor : hf_tensors(config)) {
    const std::string name = cat(kParam, tensor.parameter);
    const DType saved = checkpoint.manifest().tensors.at(name).dtype;
    const std::size_t begin = static_cast<std::size_t>(tensor.begin) * size_of(saved);
    sources.push_back(
        {tensor.name, dtype, tensor.shape,
         [&checkpoint, parameters, dtype, name, saved, begin,
          is_part = tensor.is_part()](std::span<std::byte> bytes) {
           if (!is_part) return convert_floats(saved, checkpoint.read_logical(name), dtype, bytes);
           const std::size_t size = bytes.size() / size_of(dtype) * size_of(saved);
           convert_floats(saved, std::span(parameters->read(name)).subspan(begin, size), dtype,
                          bytes);
         }});
  }
  return sources;
}

/// Returns the weights of the base with the adapters added.
std::vector<SafetensorsSource> merged_weights(const Checkpoint& checkpoint, const Checkpoint& base,
                                              const model::ModelConfig& config, DType dtype) {
  std::vector<SafetensorsSource> sources = own_weights(base, config, dtype);
  const model::LoraConfig lora = lora_of(checkpoint);
  const std::vector<LoraAdapter> adapters = lora_adapters(lora, config);
  check_adapters(checkpoint, adapters, lora.rank);
  for (const LoraAdapter& adapter : adapters) {
    const auto source = std::find_if(
        sources.begin(), sources.end(),
        [&](const SafetensorsSource& one) { return one.name == cat(adapter.module, ".weight"); });
    source->fill = [&checkpoint, &base, adapter, lora, dtype](std::span<std::byte> bytes) {
      const std::vector<double> merged = merged_weight(checkpoint, base, adapter, lora);
      convert_floats(DType::f64, std::as_bytes(std::span(merged)), dtype, bytes);
    };
  }
  return sources;
}

}  // namespace

std::vector<SafetensorsSource> whole_weights(const Checkpoint& checkpoint, const Checkpoint* base,
                                             const model::ModelConfig& config, DType dtype) {
  TRIREME_ASSERT(holds_adapters(checkpoint) == (base != nullptr));
  return base != nullptr ? merged_weights(checkpoint, *base, config, dtype)
                         : own_weights(checkpoint, config, dtype);
}

}  // namespace trireme::checkpoint
