#include "generate/cache/schedule.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace trireme::generate {
namespace {

KvBlocks::Tokens block_tokens(const ActiveSequence& text, std::size_t block) {
  constexpr auto kTokens = static_cast<std::size_t>(KvBlocks::kTokens);
  return KvBlocks::Tokens(text.tokens.data() + block * kTokens, kTokens);
}

}  // namespace

std::vector<float> ActiveSequence::mean_hidden() const {
  std::vector<float> mean;
  for (const double sum : hidden_sum) {
    mean.push_back(static_cast<float>(sum / static_cast<double>(length())));
    if (!std::isfinite(mean.back()))
      fail(ErrorKind::numeric, "the model's hidden states are not finite after {} tokens",
           length());
  }
  return mean;
}

Schedule::Schedule(const EngineConfig& config, std::int64_t blocks)
    : config_(config), blocks_(blocks) {}

void Schedule::add(std::unique_ptr<ActiveSequence> text) {
  waiting_.push_back(std::move(text));
}

void Schedule::start_waiting() {
  while (!waiting_.empty() && static_cast<std::int64_t>(running_.size()) < config_.max_batch) {
    ActiveSequence& text = *waiting_.front();
    share_blocks(text);
    // Keep one free block for each running sequence. Otherwise a new sequence would be preempted at
    // once.
    const auto have = static_cast<std::int64_t>(text.blocks.size());
    const std::int64_t needed = KvBlocks::needed(text.length() + 1) - have;
    const auto spare = static_cast<std::int64_t>(running_.size());
    if (!running_.empty() && blocks_.available() < needed + spare) {
      give_back_blocks(text);
      return;
    }
    if (!text.started) {
      text.started = true;
      counters_.prompt_tokens += text.prompt_length();
      text.cached_tokens = text.computed;
      counters_.cached_tokens += text.cached_tokens;
    }
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void Schedule::share_blocks(ActiveSequence& text) {
  if (!config_.share_prefixes) return;
  // Do not share the block of the last token: at least one token must be computed to get logits.
  while (text.may_share() && text.blocks.size() == text.published &&
         text.computed == static_cast<std::int64_t>(text.blocks.size()) * KvBlocks::kTokens &&
         text.computed + KvBlocks::kTokens < text.length()) {
    const auto found = blocks_.share(text.chain, block_tokens(text, text.published));
    if (!found) return;
    text.blocks.push_back(found->block);
    text.chain = found->chain;
    text.computed += KvBlocks::kTokens;
    ++text.published;
  }
}

std::int64_t Schedule::reserve_descriptors(std::size_t i, std::int64_t rows) {
  ActiveSequence& text = *running_[i];
  const auto needed = static_cast<std::size_t>(KvBlocks::needed(text.computed + rows));
  while (text.blocks.size() < needed) {
    if (const auto block = blocks_.take()) {
      text.blocks.push_back(*block);
    } else if (i + 1 < running_.size()) {
      preempt_last();
    } else {
      break;
    }
  }
  const auto room = static_cast<std::int64_t>(text.blocks.size()) * KvBlocks::kTokens;
  return std::min(rows, room - text.computed);
}

void Schedule::publish_blocks(ActiveSequence& text, std::int64_t rows) {
  if (!config_.share_prefixes) return;
  const auto full = static_cast<std::size_t>((text.computed + rows) / KvBlocks::kTokens);
  for (; text.published < full; ++text.published) {
    text.chain = blocks_.publish(text.blocks[text.published], text.chain,
                                 block_tokens(text, text.published));
  }
}

void Schedule::give_back_blocks(ActiveSequence& text) {
  // The last block is freed first, so that common prefixes stay cached longest.
  for (auto block = text.blocks.rbegin(); block != text.blocks.rend(); ++block)
    blocks_.give_back(*block);
  text.blocks.clear();
  text.computed = 0;
  text.chain = KvBlocks::kStart;
  text.published = 0;
}

void Schedule::preempt_last() {
  give_back_blocks(*running_.back());
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
  ++counters_.preemptions;
}

std::int64_t Schedule::rows_behind(std::int64_t rows, std::int64_t before) const {
  const std::int64_t cost = config_.row_cost_tokens;
  return cost == 0 || rows == 0 ? rows : std::max<std::int64_t>(rows * cost / (cost + before), 1);
}

std::int64_t Schedule::first_rows_for(std::int64_t rows, std::int64_t before) const {
  const std::int64_t cost = config_.row_cost_tokens;
  return cost == 0 ? rows : (rows * (cost + before) + cost - 1) / cost;
}

std::vector<SequenceRows> Schedule::next_step() {
  start_waiting();
  const bool beside = std::any_of(running_.begin(), running_.end(),
                                  [](const auto& text) { return text->drawing(); });
  std::int64_t prompt_rows = beside ? config_.prompt_tokens_while_decoding : config_.prompt_tokens;
  std::vector<SequenceRows> step;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    ActiveSequence& text = *running_[i];
    const bool drawing = text.drawing();
    if (!drawing) share_blocks(text);
    std::int64_t rows = text.length() - text.computed;
    const std::int64_t before = beside ? text.computed : 0;
    if (!drawing) rows = std::min(rows, rows_behind(prompt_rows, before));
    if (rows > 0) rows = reserve_descriptors(i, rows);
    if (rows == 0) continue;
    if (!drawing) prompt_rows -= std::min(prompt_rows, first_rows_for(rows, before));
    publish_blocks(text, rows);
    step.push_back({&text, rows});
  }
  TRIREME_ASSERT(!step.empty() || (running_.empty() && waiting_.empty()));
  return step;
}

void Schedule::forget() {
  blocks_.withdraw_published();
  // Include sequences without rows in this step, because they may share a block that another
  // sequence did not fill.
  for (const auto& text : running_) give_back_blocks(*text);
}

void Schedule::remove_finished() {
  const auto leave = [&](const std::unique_ptr<ActiveSequence>& text) {
    if (text->finished) give_back_blocks(*text);
    return text->finished;
  };
  std::erase_if(running_, leave);
  std::erase_if(waiting_, leave);
}

void Schedule::for_each(const std::function<void(ActiveSequence&)>& call) {
  for (const auto& text : running_) call(*text);
  for (const auto& text : waiting_) call(*text);
}

EngineCounters Schedule::counters() const {
  EngineCounters counters = counters_;
  counters.running = static_cast<std::int64_t>(running_.size());
  counters.waiting = static_cast<std::int64_t>(waiting_.size());
  counters.kv_blocks_used = blocks_.used();
  counters.kv_blocks_total = blocks_.total();
  return counters;
}

}  // namespace trireme::generate
