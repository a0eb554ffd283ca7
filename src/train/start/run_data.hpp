#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/order/samples.hpp"
#include "data/order/stream.hpp"
#include "data/shards/staged_set.hpp"
#include "data/shards/token_set.hpp"
#include "train/config/config.hpp"

namespace trireme {

/// What a run draws from: the stream of its samples, and what it is validated on.
class RunData {
 public:
  /// Opens the sets of config.data, which must be of one of `kinds`. `choose`: sets what of the
  /// stream is the task's own; it may ask the first set's tokenizer. Throws as SampleStream::open;
  /// Error(usage) for a set of another kind, sets of several chat formats, a validation set of
  /// another tokenizer, or validation without anything to validate on.
  using Choose = std::function<void(StreamConfig&, const EncodeWord&)>;

  RunData(const RunConfig& config, std::span<const std::string_view> kinds, const Choose& choose);
  RunData(const RunData&) = delete;
  RunData& operator=(const RunData&) = delete;

  [[nodiscard]] const SampleStream& stream() const { return stream_; }

  /// train.seq_len; if that is 0, the length that the first set was packed for.
  [[nodiscard]] std::int64_t seq_len() const { return seq_len_; }

  /// Of a set of its own, or a part of each training set; may be none.
  [[nodiscard]] std::span<const SampleSet> validation() const { return valid_samples_; }

  /// Every set that is trained on or, if train.eval_every asks for it, validated on.
  [[nodiscard]] std::vector<const SampleSet*> sample_sets() const;

  /// Names and contents of the tokenizer's files, as they were when the set was opened.
  [[nodiscard]] const std::map<std::string, std::string>& tokenizer_files() const {
    return tokenizer_files_;
  }

  /// The chat format of the training sets; "" for texts.
  [[nodiscard]] const std::string& chat_template() const { return chat_template_; }

  /// The chat format of data.valid_path; "" for texts, and where there is no such set.
  [[nodiscard]] std::string valid_chat_template() const {
    return valid_set_ ? valid_set_->manifest().chat_template() : std::string();
  }

  /// Samples of `epochs` passes over the data, at least 1: a part of a sample counts as one. Throws
  /// Error(usage) where one pass over the data is not defined.
  [[nodiscard]] std::int64_t samples_of_epochs(double epochs) const;

  /// "800 sequences in ", for a log line that goes on with the path.
  [[nodiscard]] std::string size_text() const;

 private:
  /// Where to read a set: its copy, where data.stage asks for one.
  std::string local(const std::string& folder, const std::string& stage);
  SampleStream open_stream(const RunConfig& config, std::span<const std::string_view> kinds,
                           const Choose& choose);
  void open_validation(const RunConfig& config, std::span<const std::string_view> kinds);

  std::map<std::string, std::unique_ptr<StagedSet>> staged_;  // by the folder that was named
  SampleStream stream_;
  std::int64_t seq_len_ = 0;
  std::map<std::string, std::string> tokenizer_files_;
  std::string chat_template_;
  bool validates_ = false;
  std::optional<TokenSet> valid_set_;
  std::vector<SampleSet> valid_samples_;
};

}  // namespace trireme
