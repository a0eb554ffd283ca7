#include "serve/serve_metrics.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::serve {
namespace {

std::string counted(const char* name, const char* type, const char* help, std::int64_t value) {
  return formatted("# HELP {} {}\n# TYPE {} {}\n{} {}\n", name, help, name, type, name, value);
}

}  // namespace

void Histogram::add(double seconds) {
  const auto bound = std::lower_bound(kBounds_s.begin(), kBounds_s.end(), seconds);
  const std::lock_guard lock(mutex_);
  ++counts_[static_cast<std::size_t>(bound - kBounds_s.begin())];
  sum_ += seconds;
}

std::string Histogram::text(const char* name, const char* help) const {
  const std::lock_guard lock(mutex_);
  std::string lines = formatted("# HELP {} {}\n# TYPE {} histogram\n", name, help, name);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const std::string bound = i < kBounds_s.size() ? number_text(kBounds_s[i]) : "+Inf";
    lines += formatted("{}_bucket{{le=\"{}\"}} {}\n", name, bound, total);
  }
  return lines + formatted("{}_sum {}\n{}_count {}\n", name, number_text(sum_), name, total);
}

std::string metrics_text(const ServeMetrics& metrics, const generate::EngineCounters& counters) {
  return counted("trireme_requests_running", "gauge", "Number of running answers.",
                 counters.running) +
         counted("trireme_requests_waiting", "gauge",
                 "Number of answers that wait for KV blocks or a slot.", counters.waiting) +
         counted("trireme_prompt_tokens_total", "counter", "Number of prompt tokens.",
                 counters.prompt_tokens) +
         counted("trireme_prompt_tokens_cached_total", "counter",
                 "Number of prompt tokens with cached keys and values.", counters.cached_tokens) +
         counted("trireme_generation_tokens_total", "counter", "Number of generated tokens.",
                 counters.generated_tokens) +
         counted("trireme_kv_blocks_used", "gauge", "Number of KV blocks in use.",
                 counters.kv_blocks_used) +
         counted("trireme_kv_blocks_total", "gauge", "Number of KV blocks.",
                 counters.kv_blocks_total) +
         counted("trireme_preemptions_total", "counter", "Number of preempted answers.",
                 counters.preemptions) +
         counted("trireme_graph_launches_total", "counter",
                 "Number of decoding steps that were launched as a CUDA graph.",
                 counters.graph_launches) +
         metrics.first_token_s.text("trireme_first_token_seconds",
                                    "Time from the request to the first token of an answer.") +
         metrics.inter_token_s.text("trireme_inter_token_seconds",
                                    "Time between two tokens of an answer.") +
         metrics.request_s.text("trireme_request_seconds",
                                "Time from the request to its last token.");
}

}  // namespace trireme::serve
