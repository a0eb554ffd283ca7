#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.hpp"
#include "parallel/slice.hpp"

namespace trireme {

/// One tensor of a run's state, as this rank holds it. Logical names: "param/<hf name>",
/// "optim/<slot>/<hf name>".
struct StateTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  // logical, global
  Slice slice;                      // what `bytes` covers
  std::span<std::byte> bytes;       // slice.count() * size_of(dtype), host memory
  bool owner = true;                // among replicas, exactly one rank owns (writes) each element
};

/// Key in StateDict::values of the validation loss at that step, as number_text, where one is
/// known: by it the best checkpoints are kept.
inline constexpr const char* kValidLossValue = "valid_loss";

/// Key of the chat format that the model was trained with, a name of text/chat; absent: none.
inline constexpr const char* kChatTemplateValue = "chat.template";

/// Key of an imported checkpoint: the chat template of the folder's tokenizer files, as
/// template_of_files (tokenizer/model_template.hpp) names it. It travels with the model.
inline constexpr const char* kImportedTemplateValue = "chat.imported_template";

/// Key of the Hugging Face model_type that the weights came from ("mistral"); absent: ours.
inline constexpr const char* kHfFamilyValue = "hf.model_type";

/// Everything an exact resume needs. Tensors may be in slices; `values` and `files`
/// are equal on all ranks.
struct StateDict {
  std::vector<StateTensor> tensors;
  std::map<std::string, std::string>
      values;  // scalars as text: "step", "data.next_sample", "scaler.scale", ...
  std::map<std::string, std::string>
      files;  // small files carried along: "tokenizer.json", "config.toml", ...
};

}  // namespace trireme
