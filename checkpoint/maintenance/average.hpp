#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::checkpoint {

struct AverageCommand {
  std::vector<std::string> models;  // paths of checkpoints or runs, at least two
  std::string output;               // run directory to write
  std::string weights;              // "0.5,0.25,0.25": one number per model; "": equal
  bool ema = false;                 // average the EMA of the weights
  bool allow_older = false;
};

/// Writes the weighted mean of the models' weights as step 0 of a new run directory. Adds in fp64
/// in the order of the models and rounds once to the dtype of the first one. Values of the model
/// and tokenizer files are those of the first one. The layouts of the checkpoints may differ.
/// Returns a line for standard output.
///   memory  all weights in their dtype, and one tensor in fp64
/// Throws Error(usage) for models that do not match, naming the first difference, and Error(data)
/// for damage.
std::string checkpoint_average(const AverageCommand& options);

}  // namespace trireme::checkpoint
