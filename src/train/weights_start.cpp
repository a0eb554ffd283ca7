#include "train/weights_start.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "checkpoint/folder.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/model_values.hpp"
#include "core/error.hpp"
#include "text/tokenizer.hpp"

namespace trireme {
namespace {

constexpr std::array<std::string_view, 4> kMayDiffer{
    "model.preset", "model.dropout", "model.attention_dropout", "model.max_seq_len"};

std::filesystem::path newest_in(const std::filesystem::path& folder) {
  const std::vector<std::int64_t> steps = list_steps(folder);
  return steps.empty() ? "" : folder / step_folder_name(steps.front());
}

}  // namespace

bool is_weights_only(const Checkpoint& checkpoint) {
  return !checkpoint.manifest().values.contains("update");
}

std::optional<Checkpoint> find_weights_start(const std::filesystem::path& own,
                                             const std::string& resume) {
  try {
    std::filesystem::path start = newest_in(own);
    if (start.empty() && resume != "auto" && resume != "never") {
      const CheckpointPlace place = find_place(resume);
      start = place.is_step ? place.path : newest_in(place.path);
    }
    if (start.empty()) return std::nullopt;
    Checkpoint checkpoint = Checkpoint::open(start);
    if (is_weights_only(checkpoint)) return checkpoint;
  } catch (const Error&) {  // the resume verifies, and passes over damaged ones
  }
  return std::nullopt;
}

void check_same_model(const Checkpoint& checkpoint, const ModelConfig& model) {
  std::map<std::string, std::string> wanted;
  put_model_values(model, wanted);
  const std::map<std::string, std::string>& saved = checkpoint.manifest().values;
  std::string differences;
  for (const auto& [key, value] : wanted) {
    const auto found = saved.find(key);
    const bool may_differ =
        std::find(kMayDiffer.begin(), kMayDiffer.end(), key) != kMayDiffer.end();
    if (may_differ || found == saved.end() || found->second == value) continue;
    differences += cat("\n  ", key, " = ", value, ", the weights have ", found->second);
  }
  if (!differences.empty()) {
    fail(ErrorKind::usage,
         "this model is not the one of the weights in ",
         checkpoint.path().string(),
         ":",
         differences,
         "\nLeave these keys out, and they are taken from there.");
  }
}

void check_same_tokenizer(const Checkpoint& checkpoint, const std::string& set_tokenizer_hash) {
  if (!checkpoint.has_file("tokenizer.json")) return;
  const Tokenizer tokenizer = Tokenizer::from_files(
      {{"tokenizer.json", checkpoint.file("tokenizer.json")}}, checkpoint.path().string());
  if (tokenizer.content_hash() != set_tokenizer_hash) {
    fail(ErrorKind::usage,
         "the token set was packed with another tokenizer than that of the weights in ",
         checkpoint.path().string(),
         ": pack it with `trireme-data pack --tokenizer ",
         checkpoint.path().string(),
         "`");
  }
}

}  // namespace trireme
