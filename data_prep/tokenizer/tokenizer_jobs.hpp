#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "data_prep/documents/jsonl_record.hpp"
#include "data_prep/progress.hpp"
#include "text/learn/bpe_trainer.hpp"

namespace trireme {

/// `trireme-data tokenizer train`.
struct TrainTokenizerConfig {
  std::vector<std::string> inputs;
  std::string output;  // a folder: new, empty, or holding just what training gives
  std::string field = "text";
  SplitStep pattern = SplitStep::gpt2;  // cuts texts into words
  OnBadText on_bad_text = OnBadText::error;
  bool by_lines =
      false;  // each line of a text is a unit of its own, as Hugging Face's train(files)
  bool cut_special = false;  // reserved tokens in the texts are words of their own, not plain text
  std::int64_t threads = 0;
  ProgressMode progress = ProgressMode::automatic;
  BpeTrainOptions bpe;
};

/// Counts the pieces of every text, learns merges, writes tokenizer.json and tokenizer_config.json.
/// Collective over `world` (null: this process alone): its ranks share the counting,
/// rank 0 learns. The files depend on the texts alone, not on threads or ranks.
/// Bad lines are left out with a warning. Throws Error(usage) for an output folder
/// that holds something else; Error(data) as pack.
void train_tokenizer(const TrainTokenizerConfig& config, Communicator* world = nullptr);

/// "minimind", "none", or a JSON file with a list of tokens or of {"content", "special"} objects.
/// Throws Error(usage) that names what is wrong with the file.
std::vector<ReservedToken> read_special_tokens(const std::string& source);

/// `trireme-data tokenizer encode`: a text field of each line to {"ids":[...]}, in order.
struct EncodeConfig {
  std::string tokenizer;
  std::string input;
  std::string output;
  std::string field = "text";
  bool add_special_tokens = true;
  bool match_added_tokens = true;
  OnBadText on_bad_text = OnBadText::error;
  std::int64_t threads = 0;
};

/// Throws Error(data) with path:offset for the first line without such a text:
/// lines must stay in step.
void encode_file(const EncodeConfig& config);

/// `trireme-data tokenizer decode`: {"ids":[...]} lines to {"text":...}, in order.
void decode_file(const std::string& tokenizer, const std::string& input, const std::string& output,
                 bool skip_special);

}  // namespace trireme
