#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "data/order/samples.hpp"
#include "data/sequences/length_loss.hpp"
#include "data_prep/inspect/inspect.hpp"
#include "data_prep/inspect/inspect_document.hpp"
#include "text/tokenizer.hpp"
#include "unit/data_prep/small_corpus.hpp"

/// Conversations and preference pairs, packed from lines that a test writes.
namespace trireme::testing {

inline SortedJson message(const std::string& role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

inline SortedJson talk(const std::vector<std::string>& contents) {
  SortedJson messages = SortedJson::array();
  for (std::size_t i = 0; i < contents.size(); ++i)
    messages.push_back(message(i % 2 == 0 ? "user" : "assistant", contents[i]));
  return messages;
}

inline std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

class ChatPack : public ::testing::Test {
 protected:
  ChatPack() {
    static const std::map<std::string, std::string> files = [this] {
      data_prep::write_synth((path_ / "corpus.jsonl").string(), 400, 3, false);
      return text::Tokenizer::load(tokenizer_of(path_, (path_ / "corpus.jsonl").string())).files();
    }();
    std::filesystem::create_directories(tokenizer_);
    for (const auto& [name, content] : files)
      write_text(std::filesystem::path(tokenizer_) / name, content);
  }

  /// Packs these lines. Returns the summary of the data set.
  SortedJson pack_lines(const std::string& kind, const std::vector<std::string>& lines,
                        const std::function<void(data_prep::PackConfig&)>& change = {}) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    write_text(path_ / "in.jsonl", text);
    data_prep::PackConfig config = pack_config((path_ / "in.jsonl").string(), path_ / "set");
    config.documents.kind = kind;
    config.documents.chat.format = "minimind-v3";
    if (change) change(config);
    std::filesystem::remove_all(config.output);
    report_ = pack_with(config, tokenizer_, nullptr);
    set_.emplace(data::TokenSet::open(config.output));
    set_->verify(false);
    return SortedJson::parse(data_prep::inspect_json(*set_));
  }

  std::string sft(const SortedJson& messages) {
    return SortedJson{{"conversations", messages}}.dump();
  }

  std::string dpo(const std::string& prompt, const std::string& good, const std::string& bad) {
    return SortedJson{{"chosen", talk({prompt, good})}, {"rejected", talk({prompt, bad})}}.dump();
  }

  SortedJson line(std::uint64_t number) {
    return SortedJson::parse(data_prep::document_json(*set_, data_prep::find_line(*set_, number)));
  }

  /// Returns all samples of the last packed data set, cut to this length, as one batch.
  data::Batch cut_to(std::int64_t seq_len) {
    const data::SampleSet samples(*set_, seq_len);
    std::vector<std::int64_t> indices(samples.size());
    std::iota(indices.begin(), indices.end(), 0);
    return samples.make_batch(indices, data::SampleOrder(samples.size(), 0, /*shuffle=*/false));
  }

  /// Expects that the last packed data set loses at this length what `counts` of a pack at this
  /// length say.
  void expect_loss(const data::ShardCounts& counts, std::int64_t seq_len) {
    const data::LengthTruncation loss =
        data::length_loss(*set_, seq_len, data::DocumentRange{0, set_->num_documents()}).value();
    EXPECT_EQ(loss.documents, counts.documents + counts.dropped) << seq_len;
    EXPECT_EQ(loss.dropped, counts.dropped_long) << seq_len;
    EXPECT_EQ(loss.truncated, counts.truncated) << seq_len;
    EXPECT_EQ(loss.cut_prompts, counts.cut_prompts) << seq_len;
    EXPECT_EQ(loss.cut_answers, counts.cut_answers) << seq_len;
    EXPECT_EQ(loss.targets, set_->manifest().counts.target_tokens);
    EXPECT_EQ(loss.targets - loss.lost_targets, counts.target_tokens) << seq_len;
  }

  /// Expects that a data set packed for 64 tokens trains at a shorter length like one packed for
  /// that length.
  void expect_cut_as_packed(const std::string& kind, const std::vector<std::string>& lines,
                            const std::vector<std::int64_t>& lengths,
                            const std::function<void(data_prep::PackConfig&)>& change = {}) {
    const auto small = [&](data_prep::PackConfig& config) {
      config.unit_bytes = 4000;
      if (change) change(config);
    };
    for (const std::int64_t seq_len : lengths) {
      pack_lines(kind, lines, [&](data_prep::PackConfig& config) {
        small(config);
        config.seq_len = seq_len;
      });
      const data::Batch packed = cut_to(seq_len);
      const std::uint64_t documents = set_->num_documents();
      const data::ShardCounts counts = set_->manifest().counts;
      pack_lines(kind, lines, small);
      EXPECT_GT(set_->num_shards(), 2U);
      EXPECT_GE(set_->num_documents(), documents);
      const data::Batch cut = cut_to(seq_len);
      expect_loss(counts, seq_len);

      ASSERT_EQ(cut.tokens, packed.tokens) << seq_len;
      ASSERT_EQ(cut.targets, packed.targets) << seq_len;
      ASSERT_EQ(cut.segment_bounds, packed.segment_bounds);
      ASSERT_EQ(cut.sequence_of, packed.sequence_of);
      ASSERT_EQ(cut.num_targets, packed.num_targets);
      ASSERT_EQ(cut.num_pairs, packed.num_pairs);
    }
  }

  /// Returns the decoded targets.
  std::string trained(const SortedJson& side) {
    const text::Tokenizer tokenizer = text::Tokenizer::load(tokenizer_);
    std::vector<std::uint32_t> ids;
    for (std::size_t i = 0; i < side["ids"].size(); ++i) {
      if (side["target"][i] == 1) ids.push_back(side["ids"][i]);
    }
    return tokenizer.decode(ids);
  }

  TestDirectory folder_{"chat_pack"};
  std::filesystem::path path_ = folder_.path();
  std::string tokenizer_ = (path_ / "tok").string();
  std::optional<data::TokenSet> set_;
  data_prep::PackReport report_;
};

}  // namespace trireme::testing
