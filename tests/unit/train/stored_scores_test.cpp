#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "core/error.hpp"
#include "train/start/run_keys.hpp"
#include "train/state/resume.hpp"
#include "train/step/microbatches.hpp"
#include "train/task/reference.hpp"
#include "train/task/task.hpp"
#include "unit/data/small_set.hpp"

namespace trireme::train {
namespace {

using testing::MaskedPair;
using testing::TestDirectory;

/// Returns a pair with a prompt of two tokens, the last of them a target, and `length` tokens of
/// answer.
MaskedPair pair(std::int64_t first, std::size_t length) {
  MaskedPair result;
  result.prompt = 2;
  for (testing::MaskedTokens* side : {&result.chosen, &result.rejected}) {
    side->ids = {first, first + 1};
    side->mask = {false, true};
    for (std::size_t i = 0; i < length; ++i) {
      side->ids.push_back(first + 2 + static_cast<std::int64_t>(i) * 2 + (side == &result.chosen));
      side->mask.push_back(true);
    }
  }
  return result;
}

class StoredScores : public ::testing::Test {
 protected:
  StoredScores() {
    testing::write_masked_set<MaskedPair>(at("a"), "dpo",
                                          {{pair(10, 3), pair(30, 1)}, {pair(50, 2)}}, 8);
    testing::write_masked_set<MaskedPair>(at("b"), "dpo", {{pair(70, 3), pair(90, 1)}}, 8);
    a_.emplace(data::TokenSet::open(at("a")));
    b_.emplace(data::TokenSet::open(at("b")));
    config_.data.path = "sets/a b";
    config_.data.valid_path = "sets/b";
    config_.train.eval_every = 1;
    config_.train.seq_len = 8;
    config_.train.precision = "fp32";
    config_.checkpoint.resume = "runs/sft";
  }

  [[nodiscard]] std::filesystem::path at(const char* name) const { return folder_.path() / name; }

  /// Scores of all pairs of a data set: the sums of pair d are -10 d - 1 and -10 d - 2.
  static checkpoint::ReferenceSet scored(const data::SampleSet& samples, bool keys = true) {
    checkpoint::ReferenceSet set{.name = "given",
                                 .content_xxh3 = samples.set().content_hash(),
                                 .seq_len = samples.seq_len()};
    for (std::uint64_t i = 0; i < samples.size(); ++i) {
      const auto document = static_cast<std::int64_t>(samples.pair_document(i));
      set.documents.push_back(document);
      if (keys) set.keys.push_back(samples.pair_key(i));
      for (const int side : {1, 2})
        set.sums.push_back(-10.0 * static_cast<double>(document) - side);
      const auto targets = static_cast<std::int32_t>(samples.num_targets(i) / 2);
      set.counts.insert(set.counts.end(), {targets, targets});
    }
    return set;
  }

  [[nodiscard]] ScoreReader reader(const std::vector<const data::SampleSet*>& sets) const {
    return {config_, {"dpo", folder_name_, score_}, sets};
  }

  [[nodiscard]] std::string refusal(const checkpoint::ReferenceTable& table,
                                    const std::vector<const data::SampleSet*>& sets) const {
    try {
      check_scores(table, reader(sets));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "";
  }

  /// Returns the reference's sums of the pairs of `samples`, in file order.
  static std::vector<double> sums(objective::StoredReference& reference,
                                  const data::SampleSet& samples) {
    std::vector<std::int64_t> all(samples.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
    const data::Batch batch = samples.make_batch(all, data::SampleOrder(samples.size(), 0, false));
    const at::Tensor found = reference.sums(to_microbatch(batch, at::kCPU, 0, false));
    const double* data = found.const_data_ptr<double>();
    return {data, data + found.numel()};
  }

  TestDirectory folder_{"stored_scores"};
  std::optional<data::TokenSet> a_;
  std::optional<data::TokenSet> b_;
  RunConfig config_;
  std::string folder_name_ = "scores";
  std::string score_ = "all";
};

TEST_F(StoredScores, ServeTrainingAndValidationSetsAndPartsOfThem) {
  const data::SampleSet train(*a_, 8);
  const data::SampleSet valid(*b_, 8);
  const data::SampleSet part(*a_, {.seq_len = 8, .documents = data::DocumentRange{1, 3}});
  const checkpoint::ReferenceTable table{{}, {scored(train), scored(valid)}};
  const std::vector<const data::SampleSet*> sets{&train, &valid, &part};
  EXPECT_EQ(refusal(table, sets), "");

  const auto reference = stored_reference(table, reader(sets), {});

  EXPECT_EQ(sums(*reference, train), (std::vector<double>{-1, -2, -11, -12, -21, -22}));
  EXPECT_EQ(sums(*reference, valid), (std::vector<double>{-1, -2, -11, -12}));
  EXPECT_EQ(sums(*reference, part), (std::vector<double>{-11, -12, -21, -22}));
}

TEST_F(StoredScores, AMissingOneIsNamedWithDataSetPairAndCommand) {
  const data::SampleSet train(*a_, 8);
  const data::SampleSet valid(*b_, 8);
  const std::string text = refusal({{}, {scored(train)}}, {&train, &valid});
  EXPECT_NE(
      text.find("dpo.reference = scores has no score of pair 0 of data set " + at("b").string() +
                " (content " + b_->content_hash() + "): it was computed for given"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("trireme dpo-reference --init runs/sft --data 'sets/a b' --data.valid_path "
                      "sets/b --seq-len 8 --precision fp32 --output scores"),
            std::string::npos)
      << text;

  checkpoint::ReferenceTable partial{{}, {scored(train)}};
  partial.sets[0].documents[1] = 7;
  EXPECT_NE(refusal(partial, {&train}).find("pair 1 of data set"), std::string::npos);
  EXPECT_NE(refusal(partial, {&train}).find("that pair was not scored"), std::string::npos);
  const data::SampleSet shorter(*a_, 4);
  EXPECT_NE(refusal({{}, {scored(train)}}, {&shorter})
                .find("was scored with at most 8 tokens per side, but this run uses 4"),
            std::string::npos);
}

TEST_F(StoredScores, WithAnotherScoreAreRefused) {
  const data::SampleSet train(*a_, 8);
  checkpoint::ReferenceTable table{{}, {scored(train)}};
  score_ = "answer";
  const std::string text = refusal(table, {&train});
  EXPECT_NE(text.find("was computed with dpo.score = all, but this run has answer"),
            std::string::npos);
  EXPECT_NE(text.find("--dpo.score answer"), std::string::npos);
  table.origin.score = "answer";
  EXPECT_EQ(refusal(table, {&train}), "");
  // The key names the targets: scores of all targets cannot be used for the answers alone.
  const data::SampleSet answers(*a_, {.seq_len = 8, .answers_only = true});
  const auto reference = stored_reference(table, reader({&train}), {});
  EXPECT_THROW(sums(*reference, answers), Error);
}

TEST_F(StoredScores, FromVersion1ServeOnlyTheirOwnSet) {
  const data::SampleSet train(*a_, 8);
  const data::SampleSet valid(*b_, 8);
  const checkpoint::ReferenceTable table{{}, {scored(train, /*keys=*/false)}};
  EXPECT_NE(
      refusal(table, {&train, &valid}).find("no score of pair 0 of data set " + at("b").string()),
      std::string::npos);
  const data::SampleSet part(*a_, {.seq_len = 8, .documents = data::DocumentRange{1, 3}});
  EXPECT_EQ(refusal(table, {&part}), "");

  const auto reference = stored_reference(table, reader({&part}), {});

  EXPECT_EQ(sums(*reference, part), (std::vector<double>{-11, -12, -21, -22}));
  EXPECT_THROW(sums(*reference, valid), Error) << "the same documents and counts, another set";
}

using Given = std::vector<std::pair<const char*, const char*>>;

/// Keys of a run of `trireme dpo` from the command line and from an earlier part of the run.
struct DpoKeys {
  explicit DpoKeys(const Given& given, const std::vector<config::EarlierValue>& earlier = {})
      : keys(make_run_keys(config, task->section())) {
    for (const auto& [key, value] : given) keys->set(key, value, formatted("--{}", key));
    keys->apply_earlier(earlier);
    start.kind = RunStart::Kind::resume_run;
    start.own = true;
    finish_task_keys(*task, "dpo", config, *keys, start);
  }

  [[nodiscard]] std::size_t warnings_of_sums() const {
    std::size_t count = 0;
    for (const std::string& text : keys->warnings())
      count += text.find("dpo.logprob = sum with dpo.loss = ipo") != std::string::npos ? 1 : 0;
    return count;
  }

  std::unique_ptr<Task> task = std::ranges::find(task_rows(), "dpo", &TaskRow::name)->make();
  RunConfig config;
  std::unique_ptr<config::ConfigSet> keys;
  RunStart start;
};

TEST(RunKeys, OwnRatesOfAnOptimizerFollowTheRateOfATaskThatContinuesAModel) {
  EXPECT_EQ(DpoKeys(Given{{"optim.name", "muon"}}).keys->value("optim.matrix_lr"), "-1");
  EXPECT_EQ(DpoKeys(Given{{"optim.name", "muon"}, {"optim.matrix_lr", "0.01"}})
                .keys->value("optim.matrix_lr"),
            "0.01");
  EXPECT_EQ(DpoKeys(Given{{"optim.name", "muon"}}, {{"optim.matrix_lr", "0.02", "run"}})
                .keys->value("optim.matrix_lr"),
            "0.02");
}

TEST(DpoKeys, IpoComparesMeansUnlessSumsAreAskedFor) {
  EXPECT_EQ(DpoKeys(Given{}).keys->value("dpo.logprob"), "sum");
  EXPECT_EQ(DpoKeys(Given{}).keys->value("dpo.score"), "all");
  const DpoKeys ipo(Given{{"dpo.loss", "ipo"}});
  EXPECT_EQ(ipo.keys->value("dpo.logprob"), "mean");
  EXPECT_EQ(ipo.warnings_of_sums(), 0U);
  const DpoKeys sums(Given{{"dpo.loss", "ipo"}, {"dpo.logprob", "sum"}});
  EXPECT_EQ(sums.keys->value("dpo.logprob"), "sum");
  EXPECT_EQ(sums.warnings_of_sums(), 1U);
  EXPECT_EQ(DpoKeys(Given{{"dpo.loss", "sigmoid"}, {"dpo.logprob", "sum"}}).warnings_of_sums(), 0U);
}

TEST(DpoKeys, AResumedRunKeepsItsFirstKeys) {
  const DpoKeys old(Given{}, {{"dpo.loss", "ipo", "step-2"}, {"dpo.logprob", "sum", "step-2"}});
  EXPECT_EQ(old.keys->value("dpo.logprob"), "sum");
  EXPECT_EQ(old.warnings_of_sums(), 0U);
  RunValues values;  // from a checkpoint before dpo.score existed
  values.config = config_texts(*old.keys);
  values.config.erase("dpo.score");
  EXPECT_NO_THROW(check_same_run(values, *old.keys, "old"));
  const DpoKeys other(Given{{"dpo.score", "answer"}},
                      {{"dpo.loss", "ipo", "step-2"}, {"dpo.logprob", "sum", "step-2"}});
  EXPECT_THROW(check_same_run(values, *other.keys, "old"), Error);
  EXPECT_EQ(run_identity(*old.keys, "data"), [&] {
    config::ConfigSet& keys = *old.keys;
    keys.leave_out("dpo.score");
    return run_identity(keys, "data");
  }()) << "a run from before dpo.score keeps its identity";
}

}  // namespace
}  // namespace trireme::train
