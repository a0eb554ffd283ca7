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

namespace trireme::train {

/// The data of a run: the stream of training samples and the validation samples.
class RunData {
 public:
  /// Opens the token sets of config.data. Their kind must be in `kinds`. `choose` sets the
  /// task-specific fields of the stream; it may use the tokenizer of the first set. Throws the
  /// errors of SampleStream::open. Throws Error(usage) for a set of another kind, several chat
  /// formats, a validation set with another tokenizer, or train.eval_every without validation
  /// data.
  using Choose = std::function<void(data::StreamConfig&, const data::EncodeWord&)>;

  RunData(const RunConfig& config, std::span<const std::string_view> kinds, const Choose& choose);
  RunData(const RunData&) = delete;
  RunData& operator=(const RunData&) = delete;

  [[nodiscard]] const data::SampleStream& stream() const { return stream_; }

  /// Returns train.seq_len. If train.seq_len is 0, returns the length that the first set was packed
  /// for.
  [[nodiscard]] std::int64_t seq_len() const { return seq_len_; }

  /// Returns the validation samples: a separate set, or a part of each training set. May be empty.
  [[nodiscard]] std::span<const data::SampleSet> validation() const { return valid_samples_; }

  /// Returns all sets of the run: training sets and, if train.eval_every is not 0, validation sets.
  [[nodiscard]] std::vector<const data::SampleSet*> sample_sets() const;

  /// Returns contents of the tokenizer's files by name, as they were when the set was opened.
  [[nodiscard]] const std::map<std::string, std::string>& tokenizer_files() const {
    return tokenizer_files_;
  }

  /// Returns the chat format of the training sets; "" for plain text.
  [[nodiscard]] const std::string& chat_template() const { return chat_template_; }

  /// Returns the chat format of data.valid_path; "" for plain text or without such a set.
  [[nodiscard]] std::string valid_chat_template() const {
    return valid_set_ ? valid_set_->manifest().chat_template() : std::string();
  }

  /// Returns the number of samples of `epochs` passes over the data, rounded up, at least 1. Throws
  /// Error(usage) if the data has no defined length (blend weights or phases).
  [[nodiscard]] std::int64_t samples_of_epochs(double epochs) const;

  /// Returns text such as "800 sequences in ". The path follows it in a log line.
  [[nodiscard]] std::string size_text() const;

 private:
  /// Returns the directory to read a set from: its copy if data.stage is set.
  std::string local(const std::string& folder, const std::string& stage);
  data::SampleStream open_stream(const RunConfig& config, std::span<const std::string_view> kinds,
                                 const Choose& choose);
  void open_validation(const RunConfig& config, std::span<const std::string_view> kinds);
  /// Keeps the first `wanted` tokens of the validation samples (0: all). Throws Error(usage) if
  /// `wanted` is not a multiple of the sequence length, or larger than the validation data.
  void keep_valid_tokens(std::int64_t wanted);

  std::map<std::string, std::unique_ptr<data::StagedSet>> staged_;  // by the original directory
  data::SampleStream stream_;
  std::int64_t seq_len_ = 0;
  std::map<std::string, std::string> tokenizer_files_;
  std::string chat_template_;
  bool validates_ = false;
  std::optional<data::TokenSet> valid_set_;
  std::vector<data::SampleSet> valid_samples_;
};

}  // namespace trireme::train
