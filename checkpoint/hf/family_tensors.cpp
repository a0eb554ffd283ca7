#include "checkpoint/hf/family_tensors.hpp"

#include <algorithm>
#include <cstring>

#include "checkpoint/exchange/convert.hpp"
#include "checkpoint/exchange/hf_tensors.hpp"
#include "checkpoint/exchange/rotary_rows.hpp"
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

std::vector<FileTensor> file_tensors(const Family& family, const model::ModelConfig& config) {
  std::vector<FileTensor> tensors;
  for (const HfTensor& tensor : hf_tensors(config)) {
    const std::string name = family_tensor_name(family, tensor.name);
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

/// The rows of a part in a tensor of the file. `rows`: the row in the file of each row; empty: the
/// rows from `first` on.
struct PartRows {
  std::int64_t first = 0;
  std::vector<std::int64_t> rows{};
};

/// Returns the rows of each part of a tensor of the file.
std::vector<PartRows> rows_of_parts(const FileTensor& tensor, const Family& family,
                                    const model::ModelConfig& config) {
  std::vector<PartRows> result;
  const auto count = std::ssize(tensor.parts);
  const bool interleaved = family.interleaved_qkv && count == 3;
  std::int64_t first = 0;
  for (const NamedShape& part : tensor.parts) {
    PartRows of{first};
    const bool rotated = is_partial(config) && (part.name.find(".q_proj.") != std::string::npos ||
                                                part.name.find(".k_proj.") != std::string::npos);
    const std::int64_t number = std::ssize(result);
    for (std::int64_t row = 0; (rotated || interleaved) && row < part.shape.front(); ++row) {
      const std::int64_t own =
          rotated ? partial_rotary_row(row, config.head_dim, config.rotated_dim()) : row;
      const std::int64_t head = own / config.head_dim;
      of.rows.push_back(interleaved ? own + ((count - 1) * head + number) * config.head_dim
                                    : first + own);
    }
    first += part.shape.front();
    result.push_back(std::move(of));
  }
  return result;
}

/// Returns true if the file stores this tensor of a block transposed.
bool is_transposed(const Family& family, const FileTensor& tensor) {
  return family.transposed && tensor.shape.size() == 2 &&
         tensor.parts.front().name.ends_with("_proj.weight");
}

std::vector<std::int64_t> shape_in_file(const Family& family, const FileTensor& tensor) {
  std::vector<std::int64_t> shape = tensor.shape;
  if (is_transposed(family, tensor)) std::ranges::reverse(shape);
  return shape;
}

std::size_t count_of(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  return count;
}

/// Returns the transpose of a matrix [rows, columns].
std::vector<std::byte> transposed(std::span<const std::byte> from, std::int64_t rows,
                                  std::int64_t columns) {
  std::vector<std::byte> to(from.size());
  const auto height = static_cast<std::size_t>(rows);
  const auto width = static_cast<std::size_t>(columns);
  const std::size_t element = from.size() / (height * width);
  for (std::size_t row = 0; row < height; ++row)
    for (std::size_t column = 0; column < width; ++column)
      std::memcpy(&to[(column * height + row) * element], &from[(row * width + column) * element],
                  element);
  return to;
}

/// Copies the rows of a part between its own tensor and a tensor of the file.
void copy_rows(std::span<const std::byte> from, std::span<std::byte> to, const PartRows& part,
               std::size_t row_bytes, std::size_t count, bool to_file) {
  for (std::size_t row = 0; row < count; ++row) {
    const std::size_t in_file = part.rows.empty() ? static_cast<std::size_t>(part.first) + row
                                                  : static_cast<std::size_t>(part.rows[row]);
    std::memcpy(&to[(to_file ? in_file : row) * row_bytes],
                &from[(to_file ? row : in_file) * row_bytes], row_bytes);
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

/// Returns the rows of a part of a tensor of the file. `turned`: the file stores it transposed.
WeightTensor rows_of(const WeightTensor& tensor, const NamedShape& part, PartRows rows,
                     bool turned) {
  return {tensor.dtype, part.shape,
          [tensor, rows = std::move(rows), turned,
           count = part.shape.front()](std::span<std::byte> bytes) {
            std::vector<std::byte> all(count_of(tensor.shape) * size_of(tensor.dtype));
            tensor.read(all);
            if (turned) all = transposed(all, tensor.shape[0], tensor.shape[1]);
            const auto own = static_cast<std::size_t>(count);
            copy_rows(all, bytes, rows, bytes.size() / own, own, /*to_file=*/false);
          }};
}

}  // namespace

std::string family_tensor_name(const Family& family, std::string name) {
  for (const RenamedPart& part : family.renamed) (void)replace(name, part.ours, part.file);
  for (const FusedLinear& fused : family.fused) {
    for (const std::string_view part : fused.parts)
      if (replace(name, part, fused.file)) return name;
  }
  return name;
}

WeightSource from_family(const Family& family, const model::ModelConfig& config,
                         WeightSource weights, const std::string& where) {
  // More layers or experts than tensors are an error that checked_tensors() names.
  const std::int64_t experts = std::max<std::int64_t>(1, 3 * config.moe.num_experts);
  const auto most = std::ssize(weights);
  if (!differs(family, config) || config.num_layers > most || experts > most / config.num_layers)
    return weights;
  std::string problems;
  WeightSource renamed;
  std::erase_if(weights, [&](const auto& weight) {
    return std::ranges::any_of(family.ignored,
                               [&](std::string_view end) { return weight.first.ends_with(end); });
  });
  for (const FileTensor& tensor : file_tensors(family, config)) {
    auto found = weights.find(tensor.name);
    if (found == weights.end() && tensor.name.starts_with(family.optional_prefix))
      found = weights.find(tensor.name.substr(family.optional_prefix.size()));
    if (found == weights.end()) {
      if (tensor.parts.size() > 1) problems += formatted("\n  missing: {}", tensor.name);
      continue;
    }
    const WeightTensor whole = found->second;
    weights.erase(found);
    const std::vector<std::int64_t> shape = shape_in_file(family, tensor);
    if (whole.shape != shape || !is_float(whole.dtype)) {
      problems +=
          formatted("\n  {}: shape [{}] of {}, the model's is [{}] of floats", tensor.name,
                    joined(whole.shape, ", "), dtype_name(whole.dtype), joined(shape, ", "));
      continue;
    }
    const std::vector<PartRows> rows = rows_of_parts(tensor, family, config);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const NamedShape& part = tensor.parts[i];
      renamed[part.name] = has_offset(family, part.name)
                               ? with_offset(whole, family.norm_offset)
                               : rows_of(whole, part, rows[i], is_transposed(family, tensor));
    }
  }
  if (!problems.empty()) fail(ErrorKind::data, "{} cannot be imported:{}", where, problems);
  // A file may repeat the tied output matrix under the name of its family.
  if (auto output = weights.extract(family_tensor_name(family, "lm_head.weight"));
      !output.empty()) {
    output.key() = "lm_head.weight";
    weights.insert(std::move(output));
  }
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
      PartRows rows;
    };

    std::vector<Part> parts;
    const std::vector<PartRows> rows = rows_of_parts(tensor, family, config);
    for (std::size_t i = 0; i < rows.size(); ++i)
      parts.push_back({sources.at(tensor.parts[i].name), rows[i]});
    const auto fill =
        [parts, dtype, shape = tensor.shape, turned = is_transposed(family, tensor),
         offset = family.norm_offset,
         shifted = has_offset(family, parts.front().source.name)](std::span<std::byte> bytes) {
          for (const auto& [source, of_part] : parts) {
            std::vector<std::byte> read(count_of(source.shape) * size_of(source.dtype));
            source.fill(read);
            if (shifted) {
              add_to(read, -offset);
              convert_floats(DType::f32, read, dtype, bytes);
            } else {
              const auto count = static_cast<std::size_t>(source.shape.front());
              copy_rows(read, bytes, of_part, read.size() / count, count, /*to_file=*/true);
            }
          }
          if (turned) std::ranges::copy(transposed(bytes, shape[0], shape[1]), bytes.begin());
        };
    result.push_back({tensor.name, dtype, shape_in_file(family, tensor), fill});
  }
  return result;
}

std::string hf_adapter_problem(const Family* family, const model::ModelConfig& config) {
  const bool fused = family != nullptr && !family->fused.empty();
  if (!fused && !is_partial(config)) return "";
  return formatted("{} in transformers, so adapters of single linears do not fit",
                   fused ? "this model has fused linears"
                         : "a partial rotary embedding has rows in another order");
}

}  // namespace trireme::checkpoint
