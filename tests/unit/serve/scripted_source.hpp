#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "serve/served_model.hpp"

namespace trireme::testing {

/// An answer source with answers from a test, so that every form of an answer can be tested: one
/// part per step, each as one token. Runs in its own thread, like the engine.
class ScriptedSource final : public generate::AnswerSource {
 public:
  /// Returns the parts of the answer to a request; the last delta has the finish reason.
  using Script = std::function<std::vector<generate::Delta>(const generate::Request&)>;

  explicit ScriptedSource(Script script)
      : script_(std::move(script)), thread_([this](const std::stop_token& stop) { run(stop); }) {}

  ScriptedSource(const ScriptedSource&) = delete;
  ScriptedSource& operator=(const ScriptedSource&) = delete;

  ~ScriptedSource() override {
    thread_.request_stop();
    changed_.notify_all();
  }

  std::size_t max_queue = 1000;  // requests at once
  bool ended = false;            // accepts no request
  std::int64_t max_context = 1000;
  std::atomic<int> pause_ms = 0;  // before each part
  // Repeats the last delta but one until the request is cancelled.
  std::atomic<bool> is_endless = false;

  [[nodiscard]] std::optional<generate::RequestProblem> find_problem(
      const generate::Request& request) const override {
    const auto size = static_cast<std::int64_t>(request.prompt.size());
    if (size <= max_context) return std::nullopt;
    return generate::RequestProblem{"prompt",
                                    formatted("{} tokens, must be at most {}", size, max_context)};
  }

  [[nodiscard]] bool has_ended() const override { return ended; }

  std::optional<generate::RequestId> submit(generate::Request request, generate::OnDelta on_delta,
                                            bool follows) override {
    const std::lock_guard lock(mutex_);
    if (ended || (running_.size() >= max_queue && !follows)) return std::nullopt;
    const generate::RequestId id = ++last_id_;
    requests_.push_back(request);
    std::vector<generate::Delta> deltas = script_(request);
    running_[id] = {{deltas.begin(), deltas.end()}, std::move(on_delta), false};
    changed_.notify_all();
    return id;
  }

  void cancel(generate::RequestId id) override {
    const std::lock_guard lock(mutex_);
    const auto found = running_.find(id);
    if (found != running_.end()) found->second.is_cancelled = true;
    changed_.notify_all();
  }

  [[nodiscard]] generate::EngineCounters counters() const override {
    const std::lock_guard lock(mutex_);
    generate::EngineCounters counters;
    counters.running = static_cast<std::int64_t>(running_.size());
    counters.kv_blocks_total = 7;
    return counters;
  }

  /// Returns the last request that arrived.
  [[nodiscard]] generate::Request last_request() const {
    const std::lock_guard lock(mutex_);
    return requests_.back();
  }

 private:
  struct Running {
    std::deque<generate::Delta> deltas;
    generate::OnDelta on_delta;
    bool is_cancelled = false;
  };

  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop.stop_requested() || !running_.empty(); });
      if (stop.stop_requested()) return;
      std::vector<std::pair<generate::OnDelta, generate::Delta>> step;
      for (auto each = running_.begin(); each != running_.end();) {
        Running& one = each->second;
        generate::Delta delta = one.deltas.front();
        if (!(is_endless && one.deltas.size() == 2)) one.deltas.pop_front();
        if (one.is_cancelled) {
          delta = {};
          delta.finish = generate::FinishReason::cancelled;
        }
        step.emplace_back(one.on_delta, delta);
        each = delta.finish ? running_.erase(each) : std::next(each);
      }
      lock.unlock();
      for (auto& [on_delta, delta] : step) on_delta(std::move(delta));
      step.clear();
      if (pause_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
      lock.lock();
    }
  }

  Script script_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<generate::RequestId, Running> running_;
  std::vector<generate::Request> requests_;
  generate::RequestId last_id_ = 0;
  std::jthread thread_;
};

/// Returns these parts, as tokens with ids 300, 301, ...; then an end of this kind.
inline std::vector<generate::Delta> said(
    const std::vector<std::string>& pieces,
    generate::FinishReason finish = generate::FinishReason::stop) {
  std::vector<generate::Delta> deltas;
  for (const std::string& piece : pieces) {
    generate::Delta& delta = deltas.emplace_back();
    delta.text = piece;
    const auto id = static_cast<std::uint32_t>(300 + deltas.size() - 1);
    delta.tokens.push_back({id, -0.5F, {{id, -0.5F}, {5, -1.5F}}});
  }
  deltas.emplace_back().finish = finish;
  return deltas;
}

}  // namespace trireme::testing
