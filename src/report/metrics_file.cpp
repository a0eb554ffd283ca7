#include "report/metrics_file.hpp"

#include <simdjson.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>

#include "core/error.hpp"

namespace trireme::report {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxWords = 100'000;

/// Calls `call` for each complete line. A line over kMaxLineBytes arrives as an empty text.
void for_each_complete_line(std::ifstream& in, const std::function<void(std::string&)>& call) {
  std::string chunk(kChunkBytes, '\0');
  std::string line;
  bool too_long = false;
  while (in.read(chunk.data(), static_cast<std::streamsize>(chunk.size())), in.gcount() > 0) {
    std::string_view rest(chunk.data(), static_cast<std::size_t>(in.gcount()));
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      line.append(rest.substr(0, end));
      rest.remove_prefix(end + 1);
      if (too_long || line.size() > kMaxLineBytes) line.clear();
      call(line);
      line.clear();
      too_long = false;
    }
    line.append(rest);
    too_long = too_long || line.size() > kMaxLineBytes;
    if (too_long) line.clear();
  }
}

using Element = simdjson::dom::element;

class Reader {
 public:
  /// Parses one line and adds its content. Returns false if the line is damaged.
  bool take(const std::string& text) {
    Element line;
    if (parser_.parse(text.data(), text.size()).get(line) != simdjson::SUCCESS) return false;
    if (!line.is_object()) return false;
    const std::int64_t step = whole(line, "step", -1);
    if (const std::int64_t from = whole(line, "resumed_from", -1); from >= 0) {
      take_attempt(line);
      if (!has_attempts_) begin_attempt();
      previous_step_ = from;
    } else if (const std::int64_t at = whole(line, "eval_step", -1); at >= 0) {
      take_attempt(line);
      content_.validations.push_back({attempt_, at, real(line, "valid_loss"),
                                      real(line, "validation_s", 0), real(line, "valid_reward")});
    } else if (const std::int64_t end = whole(line, "end_step", -1); end >= 0) {
      take_attempt(line);
      content_.closings.push_back({attempt_, end, real(line, "time_s")});
    } else if (step >= 0) {
      take_step(line, step);
      if (text.find("_norm/") != std::string::npos) take_layers(line);
    }  // other lines belong to newer versions
    return true;
  }

  [[nodiscard]] MetricsFile& content() noexcept { return content_; }

 private:
  static double real(const Element& line, const char* key, double absent = kUnknown) {
    double value = absent;
    return line[key].get(value) == simdjson::SUCCESS ? value : absent;
  }

  static std::int64_t whole(const Element& line, const char* key, std::int64_t absent) {
    std::int64_t value = absent;
    return line[key].get(value) == simdjson::SUCCESS ? value : absent;
  }

  /// Returns the time part `key` of a step: 0 if it is missing or below 0.
  static double part(const Element& line, const char* key) {
    return std::max(0.0, real(line, key, 0));
  }

  std::int32_t word(const Element& line, const char* key) {
    std::string_view text;
    if (line[key].get(text) != simdjson::SUCCESS || words_.size() >= kMaxWords) return -1;
    const auto [place, is_new] =
        words_.emplace(std::string(text), static_cast<std::int32_t>(words_.size()));
    if (is_new) content_.words.emplace_back(text);
    return place->second;
  }

  void begin_attempt() {
    if (has_steps_) ++attempt_;
    has_steps_ = false;
    previous_step_ = -1;
  }

  /// Sets the attempt of a line. Files of older versions have no key `attempt`; there, a repeated
  /// step begins an attempt.
  void take_attempt(const Element& line) {
    const std::int64_t attempt = whole(line, "attempt", -1);
    if (attempt < 0) return;
    if (attempt != attempt_) previous_step_ = -1;
    has_attempts_ = true;
    attempt_ = attempt;
  }

  void take_step(const Element& line, std::int64_t step) {
    take_attempt(line);
    if (!has_attempts_ && has_steps_ && step <= previous_step_) begin_attempt();
    StepLine one;
    one.attempt = attempt_;
    one.step = step;
    one.num_steps = previous_step_ >= 0 && step > previous_step_ ? step - previous_step_ : 0;
    one.time = real(line, "time");
    one.loss = real(line, "loss");
    one.grad_norm = real(line, "grad_norm");
    one.lr = real(line, "lr");
    one.tokens = real(line, "tokens");
    one.tokens_per_s = real(line, "tokens_per_s");
    one.mfu = real(line, "mfu");
    one.step_time_s = part(line, "step_time_s");
    one.data_wait_s = part(line, "data_wait_s");
    one.comm_exposed_s = part(line, "comm_exposed_s");
    one.save_s = part(line, "save_s");
    one.validation_s = part(line, "validation_s");
    one.peer_wait_s = real(line, "peer_wait_s");
    one.energy_j = real(line, "energy_j");
    one.slowest_rank = static_cast<std::int32_t>(whole(line, "slowest_rank", -1));
    one.slowest_host = word(line, "slowest_host");
    one.slowest_phase = word(line, "slowest_phase");
    if (!has_steps_ || one.attempt != task_attempt_) find_task_metrics(line);
    task_attempt_ = one.attempt;
    for (TaskSeries& series : content_.task_series)
      series.values.push_back(real(line, series.metric.key));
    content_.steps.push_back(one);
    has_steps_ = true;
    previous_step_ = step;
  }

  /// Begins a series for each metric of the task in `line`, the first line of an attempt.
  void find_task_metrics(const Element& line) {
    std::vector<TaskSeries>& known = content_.task_series;
    for (const TaskMetric& metric : kTaskMetrics) {
      const bool is_known = std::any_of(known.begin(), known.end(), [&](const TaskSeries& one) {
        return std::string_view(one.metric.key) == metric.key;
      });
      if (!is_known && line[metric.key].error() == simdjson::SUCCESS)
        known.push_back({metric, std::vector<double>(content_.steps.size(), kUnknown)});
    }
  }

  /// Reads the norms of layers. The names of the first line that has them count.
  void take_layers(const Element& line) {
    std::vector<std::string>& names = content_.layer_names;
    if (names.empty()) {
      for (const auto field : simdjson::dom::object(line))
        if (field.key.find("_norm/") != std::string_view::npos) names.emplace_back(field.key);
    }
    LayerLine& layers = content_.layer_lines.emplace_back();
    layers.line = content_.steps.size() - 1;
    for (const std::string& name : names) layers.values.push_back(real(line, name.c_str()));
  }

  MetricsFile content_;
  simdjson::dom::parser parser_;
  std::map<std::string, std::int32_t> words_;
  std::int64_t attempt_ = 0;
  std::int64_t task_attempt_ = 0;    // attempt of the newest line of a step
  std::int64_t previous_step_ = -1;  // -1: unknown, at the start of an attempt
  bool has_attempts_ = false;        // the lines have the key `attempt`
  bool has_steps_ = false;           // this attempt has a line of a step
};

}  // namespace

MetricsFile read_metrics_file(const std::filesystem::path& file) {
  std::error_code code;
  if (!std::filesystem::exists(file, code)) return {};
  std::ifstream in(file, std::ios::binary);
  if (!in || !std::filesystem::is_regular_file(file, code))
    fail(ErrorKind::data, "{} cannot be read. Check its permissions", file.string());
  Reader reader;
  std::int64_t number = 0;
  for_each_complete_line(in, [&](std::string& line) {
    ++number;
    if (reader.take(line)) return;
    MetricsFile& content = reader.content();
    if (content.damaged_lines++ == 0) content.first_damaged = number;
  });
  return std::move(reader.content());
}

}  // namespace trireme::report
