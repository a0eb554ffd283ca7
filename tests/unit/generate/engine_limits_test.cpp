#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "generate/answer_all.hpp"
#include "generate/cache/schedule.hpp"
#include "text/chat/chat_writer.hpp"
#include "unit/core/scratch.hpp"
#include "unit/generate/small_model.hpp"

namespace trireme::testing {
namespace {

TEST(GenerationEngine, SettingsThatMakeLogitsInfiniteEndOnlyTheirRequest) {
  SmallModel small({.tie = false});
  for (parallel::ParamId id = 0; id < small.registry.size(); ++id) {
    if (small.registry.spec(id).name == "lm_head.weight") small.registry.weight(id).mul_(1e306);
  }
  generate::GenerationEngine engine(*small.model, small.tokenizer, {});
  generate::Request plain = greedy(random_prompts(1, 200, 200).front(), 3);
  plain.sampling.temperature = 1;
  std::vector<generate::Request> requests(3, plain);
  requests[1].sampling.repetition_penalty = 0.01;
  requests[2].sampling.repetition_penalty = 0.01;
  requests[2].sampling.top_p = 0.9;

  const auto answers = generate::answer_all(engine, requests);

  EXPECT_EQ(answers[0].tokens.size(), 3U);
  for (const std::size_t i : {1, 2}) {
    ASSERT_TRUE(answers[i].error) << i;
    EXPECT_EQ(answers[i].error->kind(), ErrorKind::numeric);
    EXPECT_TRUE(contains(answers[i].error->what(), "not finite"));
    EXPECT_TRUE(answers[i].tokens.empty());
  }
}

TEST(GenerationEngine, PromptAndTextTogetherFitTheContext) {
  const SmallModel small;
  generate::GenerationEngine engine(*small.model, small.tokenizer, {.max_context = 8});
  const auto answers = generate::answer_all(
      engine, {greedy({1, 2, 3}, 100), greedy({1, 2, 3, 4, 5, 6, 7}, 9), greedy({1, 2, 3}, 5)});
  EXPECT_EQ(answers[0].tokens.size(), 5U);
  EXPECT_EQ(answers[1].tokens.size(), 1U);
  EXPECT_EQ(answers[2].tokens.size(), 5U);
  for (const generate::Answer& answer : answers)
    EXPECT_EQ(answer.finish, generate::FinishReason::length);

  generate::Request whole = greedy({1, 2, 3, 4, 5, 6, 7, 8}, 1);
  const auto problem = engine.find_problem(whole);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->field + " = " + problem->message,
            "prompt = 8 tokens, must be at most 7 (the context less one new token)");
  whole.max_tokens = 0;
  whole.prompt_logprobs = true;
  EXPECT_FALSE(engine.find_problem(whole));
}

/// Rows of the head that only pad it would win every draw.
TEST(GenerationEngine, IdsThatNoTokenHasAreNeverDrawnAndTakeNoProbability) {
  SmallModel small({.tie = false, .padding = 4});
  for (parallel::ParamId id = 0; id < small.registry.size(); ++id) {
    if (small.registry.spec(id).name != "lm_head.weight") continue;
    const at::Tensor padding = small.registry.weight(id).narrow(0, 700, 4);
    padding.normal_(0, 1).mul_(50);
    padding[1].copy_(-padding[0]);
  }
  generate::GenerationEngine engine(*small.model, small.tokenizer, {});
  const auto likeliest = small.logits_after({1, 2}).select(0, -1).argmax().item<std::int64_t>();
  ASSERT_GE(likeliest, 700);
  std::vector<generate::Request> requests(4, greedy({1, 702, 2}, 20));
  for (generate::Request& request : requests) request.ignore_eos = true;
  requests[1].sampling.temperature = 1;
  requests[2].sampling.temperature = 1;
  requests[2].sampling.logit_bias = {{701, 100}};
  requests[2].sampling.repetition_penalty = 0.5;
  requests[3].top_logprobs = 704;
  requests[3].prompt_logprobs = true;

  const auto answers = generate::answer_all(engine, requests);

  for (const generate::Answer& answer : answers) {
    EXPECT_FALSE(answer.error);
    EXPECT_EQ(answer.tokens.size(), 20U);
    for (const std::uint32_t id : ids_of(answer)) EXPECT_LT(id, 700U);
  }
  double total = 0;
  for (const generate::TokenLogprob& each : answers[3].tokens[0].top) {
    EXPECT_LT(each.id, 700U);
    total += std::exp(double{each.logprob});
  }
  EXPECT_NEAR(total, 1, 1e-4);  // log-probabilities are floats
  EXPECT_TRUE(std::isinf(*answers[3].prompt[1].logprob));
  EXPECT_TRUE(std::isfinite(*answers[3].prompt[2].logprob));
}

/// A tokenizer that cannot be read knows the bytes of no id. All ids of the model are drawn
/// nevertheless.
TEST(GenerationEngine, AModelOfIdsAloneDrawsThem) {
  SmallModel small;
  const auto expected = small.greedy_uncached({3, 7, 1}, 6);
  small.tokenizer = text::Tokenizer::ids_only({}, 700, "Unigram");
  generate::GenerationEngine engine(*small.model, small.tokenizer, {});

  const generate::Answer answer = generate::answer_all(engine, {greedy({3, 7, 1}, 6)}).front();

  EXPECT_EQ(ids_of(answer), expected);
  EXPECT_EQ(answer.text, "");
}

/// Forces the ids of a text, whatever the model predicts.
class ForcedText final : public generate::TokenMask {
 public:
  explicit ForcedText(std::vector<std::uint32_t> ids) : ids_(std::move(ids)) {}

  bool allow(std::span<std::uint64_t> bits, std::int64_t) override {
    bits[ids_[next_] / 64] |= std::uint64_t{1} << ids_[next_] % 64;
    return true;
  }

  void accept(std::uint32_t) override { ++next_; }

 private:
  std::vector<std::uint32_t> ids_;
  std::size_t next_ = 0;
};

TEST(GenerationEngine, AStopCancelsTheAnswersThatHaveNotEnded) {
  const SmallModel small;
  generate::GenerationEngine engine(*small.model, small.tokenizer, {});
  int steps = 0;

  const auto answers = generate::answer_all(
      engine, {greedy({5, 9}, 2), greedy({3, 7, 1}, 50)}, [](auto, const auto&, const auto&) {},
      [&] { return ++steps == 4; });

  EXPECT_EQ(answers[0].finish, generate::FinishReason::length);
  EXPECT_EQ(answers[0].tokens.size(), 2U);
  EXPECT_EQ(answers[1].finish, generate::FinishReason::cancelled);
  EXPECT_EQ(answers[1].tokens.size(), 4U);
  EXPECT_EQ(steps, 4);
}

TEST(GenerationEngine, AcceptsNoRequestAfterItHasCancelledTheLast) {
  const SmallModel small;
  generate::GenerationEngine engine(*small.model, small.tokenizer, {});
  std::optional<generate::RequestId> next;
  std::vector<generate::Delta> deltas;
  engine.submit(greedy({1}, 5), [&](const generate::Delta& delta) {
    deltas.push_back(delta);
    next = engine.submit(
        greedy({1}, 5), [](const generate::Delta&) {}, /*follows=*/true);
  });
  std::stop_source stop;
  stop.request_stop();

  engine.run(stop.get_token());

  ASSERT_EQ(deltas.size(), 1U);
  EXPECT_EQ(deltas[0].finish, generate::FinishReason::cancelled);
  EXPECT_FALSE(next);
  EXPECT_FALSE(engine.submit(greedy({1}, 5), [](const generate::Delta&) {}));
  EXPECT_EQ(engine.counters().waiting, 0);
}

TEST(GenerationEngine, AChatEndsAtTheTextOfAnEndTokenThatTheTokenizerLacks) {
  const SmallModel small;
  const text::ChatWriter writer(text::chat_template("llama3"), small.tokenizer);
  generate::GenerationEngine engine(*small.model, small.tokenizer, {});
  generate::Request request = greedy({1, 2}, 100);
  request.stop = writer.end_texts(700);
  request.mask = std::make_shared<ForcedText>(
      small.tokenizer.encode("a <|eot is no end<|eot_id|>\nuser and more"));
  std::string streamed;

  const generate::Answer answer =
      generate::answer_all(engine, {request}, [&](auto, const generate::Delta& delta, const auto&) {
        streamed += delta.text;
        EXPECT_TRUE(std::string("a <|eot is no end").starts_with(streamed)) << streamed;
      }).front();

  EXPECT_EQ(answer.text, "a <|eot is no end");
  EXPECT_EQ(answer.finish, generate::FinishReason::stop);
}

TEST(Schedule, AfterAStepThatFailedNothingIsTakenToBeComputed) {
  SmallModel small;
  const generate::EngineConfig config{.max_batch = 2, .prompt_tokens = generate::KvBlocks::kTokens};
  generate::Schedule schedule(config, 64);
  const auto prompt = std::vector<std::uint32_t>(3 * generate::KvBlocks::kTokens, 7);
  for (std::uint64_t id = 1; id <= 2; ++id)
    schedule.add(std::make_unique<generate::ActiveSequence>(
        id, greedy(prompt, 1), [](const generate::Delta&) {}, small.tokenizer));
  const auto computed = [&] {
    std::vector<std::int64_t> all;
    schedule.for_each([&](const generate::ActiveSequence& text) { all.push_back(text.computed); });
    return all;
  };

  // This is the block of the first request, which the second one shares.
  ASSERT_EQ(schedule.next_step().size(), 1U);
  ASSERT_EQ(computed(), (std::vector<std::int64_t>{0, generate::KvBlocks::kTokens}));
  schedule.forget();

  EXPECT_EQ(computed(), (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(schedule.counters().kv_blocks_used, 0);
}

TEST(GenerationEngine, AQueueOfAnyLengthTakesRequests) {
  const SmallModel small;
  const auto ignore = [](const generate::Delta&) {};
  generate::GenerationEngine endless(
      *small.model, small.tokenizer,
      {.max_batch = 2, .max_queue = std::numeric_limits<std::int64_t>::max()});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(endless.submit(greedy({1}, 1), ignore));

  generate::GenerationEngine engine(*small.model, small.tokenizer,
                                    {.max_batch = 1, .max_queue = 1});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(engine.submit(greedy({1}, 1), ignore));
  EXPECT_FALSE(engine.submit(greedy({1}, 1), ignore));
  EXPECT_TRUE(engine.submit(greedy({1}, 1), ignore, /*follows=*/true));
  while (engine.step()) {
  }
  EXPECT_EQ(engine.counters().generated_tokens, 3);
}

TEST(GenerationEngine, RefusesBudgetsThatNoMachineHas) {
  const SmallModel small;
  const auto refused = [&](const generate::EngineConfig& config) {
    return error_of([&] { generate::GenerationEngine(*small.model, small.tokenizer, config); });
  };
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_TRUE(contains(refused({.kv_cache_mib = kMost}).what(), "--kv-cache-mib 92"));
  EXPECT_TRUE(contains(refused({.kv_cache_mib = -1}).what(), "--kv-cache-mib -1, must be 0"));
  EXPECT_TRUE(contains(refused({.max_batch = kMost}).what(), "--max-batch 92"));
}

TEST(GenerationEngine, RowsOfALongPromptBecomeFewerAmongOtherRequests) {
  const SmallModel small({.dtype = at::kFloat});
  generate::GenerationEngine engine(*small.model, small.tokenizer,
                                    {.prompt_tokens_while_decoding = 16, .row_cost_tokens = 50});
  bool long_began = false;
  std::size_t drawn = 0;
  engine.submit(greedy({1, 2}, 100),
                [&](const generate::Delta& delta) { drawn += delta.tokens.size(); });
  while (drawn < 5) engine.step();
  engine.submit(greedy(random_prompts(1, 200, 200).front(), 1), [&](const generate::Delta& delta) {
    long_began = long_began || !delta.tokens.empty();
  });
  int steps = 0;
  for (; !long_began; ++steps) engine.step();
  // 16, 12, 10, 8, ... rows, at the end 3; it would be 13 steps if all had 16.
  EXPECT_GT(steps, 30);
  EXPECT_LT(steps, 50);
}

}  // namespace
}  // namespace trireme::testing
