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
#include "comm/communicator.hpp"
#include "core/dtype.hpp"
#include "model/config.hpp"

/// Imports tensors of another program's files as a checkpoint of step 0.
namespace trireme::checkpoint {

/// A tensor of any source; `read` writes its elements in row-major order.
struct WeightTensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::function<void(std::span<std::byte>)> read;
};

/// Key: Hugging Face name.
using WeightSource = std::map<std::string, WeightTensor>;

/// Describes a model except for its weights.
struct ImportedModel {
  model::ModelConfig config;
  std::map<std::string, std::string> values;  // all except model.* and step
  std::map<std::string, std::string> files;   // tokenizer files
  std::string where;                          // name for messages: "hf/model"
  // --require-tokenizer: refuse a tokenizer that cannot be read; nullopt if the command has no such
  // option.
  std::optional<bool> require_tokenizer = {};
  bool logs = true;  // false: another rank logs what the import finds
};

/// Converts the result of open_safetensors_directory.
WeightSource weights_of(
    const std::map<std::string, std::shared_ptr<const SafetensorsFile>>& tensors);

/// Returns the content of the tokenizer files that exist in the directory, by name.
std::map<std::string, std::string> tokenizer_files_of(const std::filesystem::path& directory);

/// Returns the elements in float32. Throws Error(data) if the tensor contains NaN or an infinity.
std::vector<std::byte> read_f32(const WeightTensor& tensor, const std::string& name);

/// Checks `weights` and returns every parameter of the model in the order of the forward pass.
/// Stacks separate experts in `weights`. If the model has a tied embedding and also an output
/// matrix, an equal matrix is dropped, and a different matrix makes the model untied (like
/// transformers). Throws Error(data) naming every tensor that is missing, extra, or has a wrong
/// shape or dtype, and for a tokenizer that does not fit.
std::vector<NamedShape> checked_tensors(ImportedModel& model, WeightSource& weights);

/// Writes `directory`/step-000000000 with float32 parameters and the name of the chat template of
/// the tokenizer files (kImportedTemplateValue). The run id is a hash of the weights, so that a
/// second import on as many ranks writes the same bytes. All ranks pass the same model, but only
/// rank 0 sets `logs`. Each rank reads and writes a part of the tensors, with one tensor at a time in
/// memory. The caller holds the run lock. Collective. Throws like checked_tensors and
/// check_imported_tokenizer; Error(usage) if `directory` already contains a checkpoint of step 0.
std::filesystem::path write_imported(ImportedModel model, WeightSource weights,
                                     const std::filesystem::path& directory,
                                     comm::Communicator& world);

/// Like write_imported on one rank, but takes the lock of the run that `directory` belongs to.
std::filesystem::path save_imported(ImportedModel model, WeightSource weights,
                                    const std::filesystem::path& directory);

}  // namespace trireme::checkpoint
