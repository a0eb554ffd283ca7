#pragma once
#include <array>
#include <string_view>

namespace trireme::report {

/// A metric of steps that only some tasks have. A report shows the metric if the run has it.
///   key    its name in metrics.jsonl
///   title  the title of its chart
///   text   its name in the summary: "The <text> went from 1 to 2."
struct TaskMetric {
  const char* key;
  const char* title;
  const char* text;
};

inline constexpr std::array kTaskMetrics{
    TaskMetric{"reward", "Mean reward", "mean reward"},
    TaskMetric{"kl_ref", "KL divergence from the reference", "KL divergence from the reference"},
    TaskMetric{"completion_tokens_mean", "Mean tokens of an answer",
               "mean number of tokens of an answer"},
    TaskMetric{"accuracy", "Accuracy", "accuracy"},
    TaskMetric{"margin", "Reward margin", "reward margin"}};

}  // namespace trireme::report
