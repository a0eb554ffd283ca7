#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "generate/answer_all.hpp"
#include "unit/core/scratch.hpp"
#include "unit/generate/small_model.hpp"
#include "unit/ops/thread_count.hpp"

namespace trireme::testing {
namespace {

using namespace generate;

using Ids = std::vector<std::uint32_t>;

/// 1 MiB has 32 blocks of the fp64 model, or 512 tokens.
EngineConfig tight_budget() {
  return {.kv_cache_mib = 1, .prompt_tokens = 64, .share_prefixes = false};
}

TEST(GenerationEngine, AStoppedTextIsComputedAgainAndStaysTheSame) {
  const SmallModel small;
  const auto prompts = random_prompts(8, 38, 42);
  std::vector<Ids> expected;
  for (const Ids& prompt : prompts) expected.push_back(small.greedy_uncached(prompt, 45));
  for (const bool share : {false, true}) {
    EngineConfig config = tight_budget();
    config.share_prefixes = share;
    GenerationEngine engine(*small.model, small.tokenizer, config);
    ASSERT_EQ(engine.counters().kv_blocks_total, 32);

    const auto answers = answer_all(engine, greedy_requests(prompts, 45));

    EXPECT_GT(engine.counters().preemptions, 0);
    for (std::size_t i = 0; i < prompts.size(); ++i)
      EXPECT_EQ(ids_of(answers[i]), expected[i]) << i;
    EXPECT_EQ(engine.counters().kv_blocks_used, 0);
    EXPECT_EQ(engine.counters().generated_tokens, 8 * 45);
  }
}

TEST(GenerationEngine, EqualBeginningsAreComputedOnce) {
  const SmallModel small;
  const Ids common = random_prompts(1, 70, 70).front();
  std::vector<Ids> prompts;
  for (std::uint32_t last = 0; last < 4; ++last) {
    prompts.push_back(common);
    prompts.back().push_back(last);
  }
  prompts.push_back(Ids(common.begin(), common.begin() + 64));  // the last block is computed again
  GenerationEngine engine(*small.model, small.tokenizer, {});

  const auto first = answer_all(engine, greedy_requests(prompts, 8));
  const std::int64_t in_one_step = engine.counters().cached_tokens;
  std::vector<std::int64_t> cached(prompts.size());
  const auto again = answer_all(
      engine, greedy_requests(prompts, 8),
      [&](std::size_t i, const Delta& delta, const auto&) { cached[i] += delta.cached_tokens; });

  // Each prompt has 4 full blocks. All arrive together, so all but the first share the computed
  // blocks.
  EXPECT_EQ(engine.counters().prompt_tokens, 2 * (4 * 71 + 64));
  EXPECT_EQ(engine.counters().cached_tokens - in_one_step, 4 * 64 + 48);
  EXPECT_EQ(cached, (std::vector<std::int64_t>{64, 64, 64, 64, 48}));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(ids_of(first[i]), small.greedy_uncached(prompts[i], 8)) << i;
    EXPECT_EQ(ids_of(again[i]), ids_of(first[i])) << i;
  }
}

class SameBits : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(SameBits, WhateverElseRuns) {
  const SmallModel small({.dtype = GetParam()});
  const auto prompts = random_prompts(9, 1, 60);
  std::vector<Request> requests;
  for (const Ids& prompt : prompts) {
    Request request = greedy(prompt, 150);
    request.sampling = {.temperature = 1, .top_k = 50, .top_p = 0.95, .seed = 5};
    request.top_logprobs = 2;
    requests.push_back(request);
  }
  std::vector<Answer> alone;
  for (const Request& request : requests) {
    GenerationEngine engine(*small.model, small.tokenizer, {});
    alone.push_back(answer_all(engine, {request}).front());
  }
  EngineConfig config = tight_budget();
  config.prompt_tokens = 11;
  config.prompt_tokens_while_decoding = 5;
  config.max_batch = GetParam() == at::kFloat ? 9 : 4;
  GenerationEngine engine(*small.model, small.tokenizer, config);
  const ops::testing::Threads two(2);  // `alone` was computed on one thread

  const auto together = answer_all(engine, requests);

  if (GetParam() == at::kFloat) {
    EXPECT_GT(engine.counters().preemptions, 0);
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(together[i].text, alone[i].text);
    ASSERT_EQ(ids_of(together[i]), ids_of(alone[i])) << i;
    for (std::size_t k = 0; k < alone[i].tokens.size(); ++k) {
      EXPECT_EQ(*together[i].tokens[k].logprob, *alone[i].tokens[k].logprob) << i << " " << k;
      EXPECT_EQ(together[i].tokens[k].top[1].logprob, alone[i].tokens[k].top[1].logprob);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, SameBits, ::testing::Values(at::kFloat, at::kBFloat16));

TEST(GenerationEngine, ASeedIsATextAndAnswersOfOneDiffer) {
  const SmallModel small;
  const auto run = [&](std::int64_t seed, std::uint64_t answer) {
    GenerationEngine engine(*small.model, small.tokenizer, {});
    Request request = greedy({3, 7}, 12);
    request.sampling = {.temperature = 1, .seed = seed};
    request.answer = answer;
    return ids_of(answer_all(engine, {request}).front());
  };
  EXPECT_EQ(run(1, 0), run(1, 0));
  EXPECT_NE(run(1, 0), run(2, 0));
  EXPECT_NE(run(1, 0), run(1, 1));
}

TEST(GenerationEngine, EndsAtEndTokensLimitsAndTheContext) {
  const SmallModel small;
  GenerationEngine engine(*small.model, small.tokenizer, {.max_context = 16});
  const auto run = [&](Request request) {
    return answer_all(engine, {std::move(request)}).front();
  };
  const Ids free = ids_of(run(greedy({3, 7, 1}, 5)));
  ASSERT_EQ(free.size(), 5U);

  Request ended = greedy({3, 7, 1}, 5);
  ended.end_tokens = {699, free[2]};
  const Answer answer = run(ended);
  EXPECT_EQ(answer.finish, FinishReason::stop);
  EXPECT_EQ(ids_of(answer), Ids(free.begin(), std::find(free.begin(), free.end(), free[2])));
  ended.ignore_eos = true;
  EXPECT_EQ(ids_of(run(ended)), free);
  // Prompt and answer together have at most max_context tokens.
  EXPECT_EQ(run(greedy({3, 7, 1}, 100)).tokens.size(), 13U);
}

TEST(GenerationEngine, AStopStringEndsTheTextBeforeIt) {
  const SmallModel small;
  GenerationEngine engine(*small.model, small.tokenizer, {});
  const Answer free = answer_all(engine, {greedy({5, 9}, 30)}).front();
  ASSERT_GT(free.text.size(), 12U);
  // The string is in the middle of the text, so that several tokens contain it.
  const std::string stop = free.text.substr(free.text.size() / 2, 5);
  Request request = greedy({5, 9}, 30);
  request.stop = {"never there", stop};
  std::string streamed;
  const Answer answer = answer_all(engine, {request}, [&](auto, const Delta& delta, const auto&) {
                          streamed += delta.text;
                          EXPECT_EQ(streamed.find(stop), std::string::npos);
                        }).front();
  EXPECT_EQ(answer.finish, FinishReason::stop);
  EXPECT_EQ(answer.text, free.text.substr(0, free.text.find(stop)));
  EXPECT_LT(answer.tokens.size(), free.tokens.size());
}

TEST(GenerationEngine, LogProbabilitiesAreTheModelsOwn) {
  const SmallModel small;
  GenerationEngine engine(*small.model, small.tokenizer, {.prompt_tokens = 5});
  const Ids prompt = random_prompts(1, 21, 21).front();
  Request request = greedy(prompt, 3);
  request.sampling.temperature = 0.5;
  request.sampling.repetition_penalty = 2;
  request.top_logprobs = 4;
  request.prompt_logprobs = true;
  const auto answers = answer_all(engine, {request, request});
  request.max_tokens = 0;
  const Answer scored = answer_all(engine, {request}).front();

  Ids text = prompt;
  for (const TokenReport& token : answers[0].tokens) text.push_back(token.id);
  const at::Tensor expected = small.logits_after(text).log_softmax(-1);
  const auto expect_report = [&](const TokenReport& report, std::int64_t place) {
    ASSERT_TRUE(report.logprob);
    const at::Tensor row = expected.select(0, place - 1);
    EXPECT_EQ(report.id, text[static_cast<std::size_t>(place)]);
    EXPECT_NEAR(*report.logprob, row[report.id].item<double>(), 1e-6) << place;
    const auto [values, ids] = row.topk(4);
    ASSERT_EQ(report.top.size(), 4U);
    for (std::int64_t k = 0; k < 4; ++k) {
      EXPECT_EQ(report.top[static_cast<std::size_t>(k)].id, ids[k].item<std::int64_t>());
      EXPECT_NEAR(report.top[static_cast<std::size_t>(k)].logprob, values[k].item<double>(), 1e-6);
    }
  };
  for (const Answer* answer : {&answers[0], &answers[1], &scored}) {
    ASSERT_EQ(answer->prompt.size(), prompt.size());
    EXPECT_FALSE(answer->prompt.front().logprob);
    for (std::size_t i = 1; i < prompt.size(); ++i)
      expect_report(answer->prompt[i], static_cast<std::int64_t>(i));
  }
  for (std::size_t i = 0; i < 3; ++i)
    expect_report(answers[0].tokens[i], static_cast<std::int64_t>(prompt.size() + i));
  EXPECT_TRUE(scored.tokens.empty());
  EXPECT_EQ(scored.finish, FinishReason::length);
}

/// Allows one id after the other, then the end token.
class Dictated : public TokenMask {
 public:
  explicit Dictated(Ids ids) : ids_(std::move(ids)) {}

  bool allow(std::span<std::uint64_t> bits, std::int64_t vocab_size) override {
    EXPECT_EQ(vocab_size, 700);
    bits[ids_[next_] / 64] |= std::uint64_t{1} << (ids_[next_] % 64);
    return true;
  }

  void accept(std::uint32_t id) override {
    EXPECT_EQ(id, ids_[next_]);
    ++next_;
  }

  [[nodiscard]] std::size_t accepted() const { return next_; }

 private:
  Ids ids_;
  std::size_t next_ = 0;
};

TEST(GenerationEngine, AMaskDecidesWhatMayFollow) {
  const SmallModel small;
  GenerationEngine engine(*small.model, small.tokenizer, {});
  Request request = greedy({1, 2, 3}, 50);
  request.end_tokens = {2};
  const auto mask = std::make_shared<Dictated>(Ids{64, 699, 0, 2});
  request.mask = mask;
  const Answer answer = answer_all(engine, {request}).front();
  EXPECT_EQ(ids_of(answer), (Ids{64, 699, 0}));
  EXPECT_EQ(answer.finish, FinishReason::stop);
  EXPECT_EQ(mask->accepted(), 4U);
}

TEST(GenerationEngine, LogitsThatAreNotFiniteEndOnlyTheirRequest) {
  SmallModel small({.tie = false});
  small.registry.weight(parallel::ParamId{0})[9].fill_(NAN);  // the embedding of one token
  GenerationEngine engine(*small.model, small.tokenizer, {});
  const auto answers = answer_all(engine, {greedy({5, 9, 4}, 3), greedy({5, 8, 4}, 3)});
  ASSERT_TRUE(answers[0].error);
  EXPECT_EQ(answers[0].finish, FinishReason::error);
  EXPECT_EQ(answers[0].error->kind(), ErrorKind::numeric);
  EXPECT_TRUE(contains(answers[0].error->what(), "not finite"));
  EXPECT_FALSE(answers[1].error);
  EXPECT_EQ(answers[1].tokens.size(), 3U);
  EXPECT_EQ(engine.counters().kv_blocks_used, 0);
}

TEST(GenerationEngine, RefusesWhatCannotBe) {
  const SmallModel small;
  GenerationEngine engine(*small.model, small.tokenizer, {.max_context = 20});
  const auto field = [&](const std::function<void(Request&)>& change) {
    Request request = greedy({1}, 4);
    change(request);
    const auto problem = engine.find_problem(request);
    return problem ? problem->field : "";
  };
  EXPECT_EQ(field([](Request&) {}), "");
  EXPECT_EQ(field([](Request& r) { r.prompt.clear(); }), "prompt");
  EXPECT_EQ(field([](Request& r) { r.prompt = {700}; }), "prompt");
  EXPECT_EQ(field([](Request& r) { r.prompt.assign(21, 1); }), "prompt");
  EXPECT_EQ(field([](Request& r) { r.max_tokens = 0; }), "max_tokens");
  EXPECT_EQ(field([](Request& r) { r.stop = {""}; }), "stop");
  EXPECT_EQ(field([](Request& r) { r.top_logprobs = -1; }), "top_logprobs");
  EXPECT_EQ(field([](Request& r) { r.sampling.logit_bias = {{700, 1}}; }), "logit_bias");
  EXPECT_EQ(field([](Request& r) { r.sampling.top_p = 0; }), "top_p");
  EXPECT_EQ(error_of([&] { engine.submit(greedy({}, 1), [](const Delta&) {}); }).kind(),
            ErrorKind::usage);
  const auto refused = [&](const EngineConfig& config) {
    return error_of([&] { GenerationEngine(*small.model, small.tokenizer, config); });
  };
  EXPECT_TRUE(contains(refused({.max_context = 257}).what(), "--max-context 257"));
  EXPECT_TRUE(contains(refused({.max_batch = 0}).what(), "--max-batch 0"));
}

TEST(GenerationEngine, RequestsComeAndGoWhileItRuns) {
  const SmallModel small({.dtype = at::kFloat});
  EngineConfig config{.max_batch = 3, .max_queue = 2};
  GenerationEngine engine(*small.model, small.tokenizer, config);
  std::mutex mutex;
  std::condition_variable changed;
  std::map<RequestId, Answer> answers;
  std::size_t ended = 0;
  const auto submit = [&](std::int64_t max_tokens) {
    const auto number = std::make_shared<RequestId>(0);
    const std::lock_guard lock(mutex);  // no delta before the number of answers is known
    const auto id = engine.submit(greedy({4, 4}, max_tokens), [&, number](const Delta& delta) {
      const std::lock_guard hold(mutex);
      Answer& answer = answers[*number];
      answer.tokens.insert(answer.tokens.end(), delta.tokens.begin(), delta.tokens.end());
      if (!delta.finish) return;
      answer.finish = *delta.finish;
      ++ended;
      changed.notify_all();
    });
    if (id) *number = *id;
    return id;
  };
  std::vector<RequestId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(submit(200).value());
  EXPECT_FALSE(submit(1)) << "three run and two wait";
  EXPECT_EQ(engine.counters().waiting, 5);

  std::jthread thread([&](const std::stop_token& stop) { engine.run(stop); });
  engine.cancel(ids[0]);
  engine.cancel(ids[4]);
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ended == 5; });
  }
  // The engine is idle now. It wakes for one more request; the end of the thread interrupts another
  // one.
  const RequestId last = submit(5).value();
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ended == 6; });
  }
  thread.request_stop();
  thread.join();

  EXPECT_EQ(answers[ids[0]].finish, FinishReason::cancelled);
  EXPECT_EQ(answers[ids[4]].finish, FinishReason::cancelled);
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(answers[ids[static_cast<std::size_t>(i)]].finish, FinishReason::length);
    EXPECT_EQ(answers[ids[static_cast<std::size_t>(i)]].tokens.size(), 200U);
  }
  EXPECT_EQ(answers[last].tokens.size(), 5U);
  const EngineCounters counters = engine.counters();
  EXPECT_EQ(counters.kv_blocks_used, 0);
  EXPECT_EQ(counters.running + counters.waiting, 0);
}

TEST(GenerationEngine, ALongPromptRunsInChunksAmongOtherRequests) {
  const SmallModel small({.dtype = at::kFloat});
  GenerationEngine engine(*small.model, small.tokenizer,
                          {.prompt_tokens = 256, .prompt_tokens_while_decoding = 16});
  std::size_t drawn = 0;
  bool long_began = false;
  engine.submit(greedy({1, 2}, 100), [&](const Delta& delta) { drawn += delta.tokens.size(); });
  while (drawn < 5) engine.step();
  engine.submit(greedy(random_prompts(1, 200, 200).front(), 1),
                [&](const Delta& delta) { long_began = long_began || !delta.tokens.empty(); });
  const std::size_t before = drawn;
  while (!long_began) {
    const std::size_t now = drawn;
    engine.step();
    EXPECT_EQ(drawn, now + 1) << "each step draws the next token of the text that runs";
  }
  EXPECT_EQ(drawn - before, 13U);  // 200 tokens in blocks of 16
  while (engine.step()) {
  }
}

}  // namespace
}  // namespace trireme::testing
