#pragma once
#include <cstdint>
#include <string>

#include "checkpoint/exchange/import_weights.hpp"

namespace trireme::checkpoint {

/// Changes of the vocabulary during an import.
struct VocabChange {
  std::string add_tokens = {};  // --add-tokens: a file with one token on each line; "": none
  std::int64_t num_rows = 0;    // --resize-vocab: rows of the embedding; 0: as many as needed

  [[nodiscard]] bool is_any() const { return !add_tokens.empty() || num_rows != 0; }
};

/// Adds tokens to tokenizer.json and changes the number of rows of the embedding and of the
/// output matrix. New tokens get the next free ids. The rows of new tokens and additional rows
/// are the mean of the rows that have a token before the change. Throws Error(usage) if
/// `num_rows` is less than the number of token ids; Error(data) naming file and line for a token
/// that is empty, is given twice or already exists, and for a model without tokenizer.json.
void change_vocab(const VocabChange& change, ImportedModel& model, WeightSource& weights);

}  // namespace trireme::checkpoint
