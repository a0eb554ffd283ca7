#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.hpp"
#include "parallel/slice.hpp"

namespace trireme::checkpoint {

/// The slice of one tensor that this rank holds. Logical names: "param/<hf name>",
/// "optim/<slot>/<hf name>".
struct StateTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  // logical, global
  parallel::Slice slice;            // the elements in `bytes`
  std::span<std::byte> bytes = {};  // slice.count() * size_of(dtype), host memory
  bool owner = true;                // among replicas, exactly one rank owns (writes) each element
  /// If set, `bytes` is empty, and a save calls this function to get the elements of `slice`, so
  /// that only one tensor at a time is in memory.
  std::function<void(std::span<std::byte>)> produce = {};
};

/// Key in StateDict::values: the validation loss at that step (number_text), if known. Retention
/// keeps the checkpoints with the lowest loss.
inline constexpr const char* kValidLossValue = "valid_loss";

/// Key of the chat format that the model was trained with (a name of text/chat); absent: none.
inline constexpr const char* kChatTemplateValue = "chat.template";

/// Key of the chat template of imported tokenizer files, as template_of_files
/// (tokenizer/model_template.hpp) names it. Later checkpoints of the model keep it.
inline constexpr const char* kImportedTemplateValue = "chat.imported_template";
/// Key of the name of the imported Jinja text, also if it is recognized as a named template.
inline constexpr const char* kImportedJinjaValue = "chat.imported_jinja";

/// Key of the Hugging Face model_type of imported weights ("mistral"); absent: trained by Trireme.
inline constexpr const char* kHfFamilyValue = "hf.model_type";

/// The state that an exact resume needs. Tensors may be slices; `values` and `files` are equal on
/// all ranks.
struct StateDict {
  std::vector<StateTensor> tensors;
  std::map<std::string, std::string>
      values;  // scalars as text: "step", "data.next_sample", "scaler.scale", ...
  std::map<std::string, std::string>
      files;  // small files to copy: "tokenizer.json", "config.toml", ...
};

}  // namespace trireme::checkpoint
