#include "checkpoint/hf/family_tensors.hpp"

#include <algorithm>
#include <cstring>

#include "checkpoint/exchange/convert.hpp"
#include "checkpoint/exchange/hf_tensors.hpp"
#include "core/error.hpp"
#include "core/join.hpp"

namespace trireme::checkpoint {
namespace {

/// A tensor of the file, which stacks the rows of `parts`.
struct FileTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<NamedShape> parts;  // names of hf_tensors
};

/// Replaces the first occurrence of `from`. Returns false if there is none.
bool replace(std::string& text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) return false;
  text.replace(at, from.size(), to);
  return true;
}

std::string file_name(const Family& family, std::string name) {
  for (const RenamedPart& part : family.renamed) (void)replace(name, part.ours, part.file);
  for (const FusedLinear& fused : family.fused) {
    for (const std::string_view part : fused.parts)
      if (replace(name, part, fused.file)) return name;
  }
  return name;
}

std::vector<FileTensor> file_tensors(const Family& family, const model::ModelConfig& config) {
  std::vector<FileTensor> tensors;
  for (const HfTensor& tensor : hf_tensors(config)) {
    const std::string name = file_name(family, tensor.name);
    const auto same = std::find_if(tensors.rbegin(), tensors.rend(),
                                   [&](const FileTensor& one) { return one.name == name; });
    if (same == tensors.rend()) {
      tensors.push_back({name, tensor.shape, {{tensor.name, tensor.shape}}});
    } else {
      same->shape.front() += tensor.shape.front();
      same->parts.push_back({tensor.name, tensor.shape});
    }
  }
  return tensors;
}

bool is_partial(const model::ModelConfig& config) {
  return config.rotated_dim() != config.head_dim;
}

/// Returns true if the files differ from hf_tensors.
bool differs(const Family& family, const model::ModelConfig& config) {
  return !family.fused.empty() || !family.renamed.empty() || family.norm_offset != 0 ||
         is_partial(config);
}

/// Returns for each row of a tensor its row in the file's order.
std::vector<std::int64_t> file_rows(const NamedShape& part, const model::ModelConfig& config) {
  std::vector<std::int64_t> rows;
  const bool rotated = part.name.find(".q_proj.") != std::string::npos ||
                       part.name.find(".k_proj.") != std::string::npos;
  if (!rotated || !is_partial(config)) return rows;
  const std::int64_t half = config.head_dim / 2;
  const std::int64_t turned = config.rotated_dim() / 2;  // pairs
  for (std::int64_t row = 0; row < part.shape.front(); ++row) {
    const std::int64_t pair = row % half;
    const std::int64_t second = row / half % 2;
    const std::int64_t head = row / config.head_dim * config.head_dim;
    rows.push_back(head + (pair < turned ? second * turned + pair
                                         : 2 * turned + second * (half - turned) + pair - turned));
  }
  return rows;
}

std::size_t count_of(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  return count;
}

/// Copies the rows of `from` to `to`: row i to or from row `rows[i]` of the file's order.
void copy_rows(std::span<const std::byte> from, std::span<std::byte> to,
               const std::vector<std::int64_t>& rows, bool to_file) {
  if (rows.empty()) return void(std::ranges::copy(from, to.begin()));
  const std::size_t bytes = from.size() / rows.size();
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto in_file = static_cast<std::size_t>(rows[row]);
    std::memcpy(&to[(to_file ? in_file : row) * bytes], &from[(to_file ? row : in_file) * bytes],
                bytes);
  }
}

bool has_offset(const Family& family, const std::string& name) {
  return family.norm_offset != 0 && name.ends_with("norm.weight");
}

void add_to(std::span<std::byte> f32, double offset) {
  const std::span values(reinterpret_cast<float*>(f32.data()), f32.size() / sizeof(float));
  for (float& value : values) value = static_cast<float>(static_cast<double>(value) + offset);
}

/// Returns a norm of the file as float32 with the offset added.
WeightTensor with_offset(const WeightTensor& tensor, double offset) {
  return {DType::f32, tensor.shape, [tensor, offset](std::span<std::byte> bytes) {
            std::vector<std::byte> read(count_of(tensor.shape) * size_of(tensor.dtype));
            tensor.read(read);
            convert_floats(tensor.dtype, read, DType::f32, bytes);
            add_to(bytes, offset);
          }};
}

/// Returns rows [first, first + rows of part) of a tensor of the file.
WeightTensor rows_of(const WeightTensor& tensor, const NamedShape& part, std::int64_t first,
                     std::vector<std::int64_t> rows) {
  return {tensor.dtype, part.shape,
          [tensor, first, rows = std::move(rows)](std::span<std::byte> bytes) {
            std::vector<std::byte> all(count_of(tensor.shape) * size_of(tensor.dtype));
            tensor.read(all);
            const std::size_t row = all.size() / static_cast<std::size_t>(tensor.shape.front());
            const std::span<const std::byte> own =
                std::span(all).subspan(static_cast<std::size_t>(first) * row, bytes.size());
            copy_rows(own, bytes, rows, /*to_file=*/false);
          }};
}

}  // namespace

WeightSource from_family(const Family& family, const model::ModelConfig& config,
                         WeightSource weights, const std::string& where) {
  // More layers or experts than tensors are an error that checked_tensors() names.
  const std::int64_t experts = std::max<std::int64_t>(1, 3 * config.moe.num_experts);
  const auto most = std::ssize(weights);
  if (!differs(family, config) || config.num_layers > most || experts > most / config.num_layers)
    return weights;
  std::string problems;
  WeightSource renamed;
  for (const FileTensor& tensor : file_tensors(family, config)) {
    const auto found = weights.find(tensor.name);
    if (found == weights.end()) {
      if (tensor.parts.size() > 1) problems += formatted("\n  missing: {}", tensor.name);
      continue;
    }
    const WeightTensor whole = found->second;
    weights.erase(found);
    if (whole.shape != tensor.shape || !is_float(whole.dtype)) {
      problems +=
          formatted("\n  {}: shape [{}] of {}, the model's is [{}] of floats", tensor.name,
                    joined(whole.shape, ", "), dtype_name(whole.dtype), joined(tensor.shape, ", "));
      continue;
    }
    std::int64_t first = 0;
    for (const NamedShape& part : tensor.parts) {
      renamed[part.name] = has_offset(family, part.name)
                               ? with_offset(whole, family.norm_offset)
                               : rows_of(whole, part, first, file_rows(part, config));
      first += part.shape.front();
    }
  }
  if (!problems.empty()) fail(ErrorKind::data, "{} cannot be imported:{}", where, problems);
  renamed.merge(weights);
  return renamed;
}

std::vector<SafetensorsSource> to_family(
    const Family& family, const model::ModelConfig& config, DType dtype,
    const std::function<std::vector<SafetensorsSource>(DType)>& weights) {
  std::vector<SafetensorsSource> own = weights(dtype);
  if (!differs(family, config)) return own;
  std::map<std::string, SafetensorsSource> sources;
  for (SafetensorsSource& source : own) sources[source.name] = std::move(source);
  for (SafetensorsSource& source : weights(DType::f32))
    if (has_offset(family, source.name)) sources[source.name] = std::move(source);
  std::vector<SafetensorsSource> result;
  for (const FileTensor& tensor : file_tensors(family, config)) {
    struct Part {
      SafetensorsSource source;
      std::vector<std::int64_t> rows;
    };

    std::vector<Part> parts;
    for (const NamedShape& part : tensor.parts)
      parts.push_back({sources.at(part.name), file_rows(part, config)});
    const auto fill =
        [parts, dtype, offset = family.norm_offset,
         shifted = has_offset(family, parts.front().source.name)](std::span<std::byte> bytes) {
          std::size_t begin = 0;
          for (const auto& [source, rows] : parts) {
            const std::size_t count = count_of(source.shape);
            const std::span target = bytes.subspan(begin, count * size_of(dtype));
            begin += target.size();
            std::vector<std::byte> read(count * size_of(source.dtype));
            source.fill(read);
            if (shifted) {
              add_to(read, -offset);
              convert_floats(DType::f32, read, dtype, target);
            } else {
              copy_rows(read, target, rows, /*to_file=*/true);
            }
          }
        };
    result.push_back({tensor.name, dtype, tensor.shape, fill});
  }
  return result;
}

std::string hf_adapter_problem(std::string_view model_type, const model::ModelConfig& config) {
  const Family* family = find_family(model_type);
  const bool fused = family != nullptr && !family->fused.empty();
  if (!fused && !is_partial(config)) return "";
  return formatted("{} in transformers, so adapters of single linears do not fit",
                   fused ? "this model has fused linears"
                         : "a partial rotary embedding has rows in another order");
}

}  // namespace trireme::checkpoint
