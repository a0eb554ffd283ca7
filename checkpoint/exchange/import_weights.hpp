#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/exchange/hf_tensors.hpp"
#include "checkpoint/exchange/safetensors.hpp"
#include "core/dtype.hpp"
#include "model/config.hpp"

/// From tensors of another program's files to a checkpoint of step 0.
namespace trireme {

/// One tensor, wherever it lies; `read` fills its elements, row-major.
struct WeightTensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::function<void(std::span<std::byte>)> read;
};

/// By Hugging Face name.
using WeightSource = std::map<std::string, WeightTensor>;

/// What is known of a model besides its weights.
struct ImportedModel {
  ModelConfig config;
  std::map<std::string, std::string> values;  // besides model.* and step
  std::map<std::string, std::string> files;   // of its tokenizer
  std::string where;                          // for messages: "hf/model"
  // Refuse a tokenizer that cannot be read: what --require-tokenizer says; nullopt where a command has
  // no such option.
  std::optional<bool> require_tokenizer = {};
};

/// Of open_safetensors_folder.
WeightSource weights_of(
    const std::map<std::string, std::shared_ptr<const SafetensorsFile>>& tensors);

/// What a tokenizer needs of a folder: name -> content, of the files that are there.
std::map<std::string, std::string> tokenizer_files_of(const std::filesystem::path& folder);

/// In float32. Throws Error(data) if it holds NaN or an infinity.
std::vector<std::byte> read_f32(const WeightTensor& tensor, const std::string& name);

/// Every parameter of the model, in the order of the forward pass; experts that came one by one are
/// stacked in `weights`. An output matrix beside a tied
/// embedding is left out if it is the same, and makes the model untied if it is not, as transformers
/// loads it. Throws Error(data) naming every tensor that is missing, extra, or of another shape or
/// dtype, and for a tokenizer that does not fit.
std::vector<NamedShape> checked_tensors(ImportedModel& model, WeightSource& weights);

/// Writes `folder`/step-000000000 with float32 parameters and the name of the chat template of the
/// files (kImportedTemplateValue). The run id is made from the weights: importing twice gives the same
/// bytes. The caller holds the run's lock. Throws as checked_tensors and check_imported_tokenizer;
/// Error(usage) if `folder` has a checkpoint of step 0 already.
std::filesystem::path write_imported(ImportedModel model, WeightSource weights,
                                     const std::filesystem::path& folder);

/// Like write_imported, but takes the lock of the run that `folder` belongs to.
std::filesystem::path save_imported(ImportedModel model, WeightSource weights,
                                    const std::filesystem::path& folder);

}  // namespace trireme
