#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.hpp"
#include "train/eval/choices.hpp"
#include "train/eval/core_bundle.hpp"

/// The prompts of CORE: texts, token ids, and the ids that are scored.
/// Source: nanochat, nanochat/core_eval.py.
namespace trireme::train {

/// Returns the items with their solutions before item `index`, in order: the draws of Python's
/// `Random(1234 + index).sample` from all other items. If there are fewer other items than
/// `task.shots`, all of them are drawn.
std::vector<std::size_t> draw_shots(const CoreTask& task, std::size_t index);

/// The texts of one item.
struct CorePrompts {
  std::vector<std::string> options;  // one text per option
  std::string start;                 // language_modeling: the text without its continuation
};

/// Joins solved examples and the item. In language_modeling, white space at the ends of each
/// context and of CorePrompts::start is removed.
CorePrompts core_prompts(const CoreTask& task, std::size_t index,
                         const std::vector<std::size_t>& shots);

/// The token ids of one item. The ending of an option is what is scored: in multiple_choice the
/// ids after the common start of all options, in schema the common end of all options, in
/// language_modeling the ids after those of CorePrompts::start. An ending is empty if the options
/// do not differ.
struct EncodedCoreItem {
  std::vector<ContextAndEnding> options;
  bool is_cut = false;  // an option has lost its beginning
};

/// Encodes the prompts: `first_id`, then the ids of the text. Special tokens in the text are
/// plain text. An option of more than `max_length` ids loses its beginning. Throws Error(data)
/// that names the item if the ids of CorePrompts::start are not the start of the ids of the
/// option, and if an ending is longer than the model allows.
EncodedCoreItem encode_core_item(const CoreTask& task, std::size_t index,
                                 const CorePrompts& prompts, const text::Tokenizer& tokenizer,
                                 std::uint32_t first_id, std::int64_t max_length);

}  // namespace trireme::train
