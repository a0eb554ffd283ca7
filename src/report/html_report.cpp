#include "report/html_report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "report/page_files.hpp"
#include "report/run_json.hpp"
#include "report/summary.hpp"

namespace trireme::report {
namespace {

constexpr std::size_t kMostBins = 1000;  // the parts of a step have at most this many points

std::string base64(const std::vector<float>& values) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes(values.size() * sizeof(float));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t left = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < 3; ++i)
      word = word << 8 | (i < left ? bytes[at + i] : std::uint32_t{0});
    for (std::size_t i = 0; i < 4; ++i)
      text += i <= left ? kDigits[word >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

/// Returns the lines that count: of each step the last one, in the order of steps.
std::vector<const StepLine*> kept_lines(const RunReport& run) {
  std::vector<const StepLine*> lines;
  for (const StepLine& line : run.metrics.steps)
    if (run.goodput.is_kept(line)) lines.push_back(&line);
  return lines;
}

Json series_json(const RunReport& run, const std::vector<const StepLine*>& lines) {
  const auto encoded = [&](auto value_of) {
    std::vector<float> values;
    values.reserve(lines.size());
    for (const StepLine* line : lines) values.push_back(static_cast<float>(value_of(*line)));
    return base64(values);
  };
  Json json{{"count", lines.size()}};
  std::set<std::int64_t> distances;
  for (std::size_t i = 1; i < lines.size() && distances.size() < 2; ++i)
    distances.insert(lines[i]->step - lines[i - 1]->step);
  if (!lines.empty() && distances.size() < 2) {
    json["first"] = lines.front()->step;
    json["every"] = distances.empty() ? 1 : *distances.begin();
  } else {  // exact up to 2^24 steps
    json["step"] = encoded([](const StepLine& line) { return static_cast<double>(line.step); });
  }
  json["loss"] = encoded([](const StepLine& line) { return line.loss; });
  json["tokens_per_s"] = encoded([](const StepLine& line) { return line.tokens_per_s; });
  json["grad_norm"] = encoded([](const StepLine& line) { return line.grad_norm; });
  json["lr"] = encoded([](const StepLine& line) { return line.lr; });
  json["task"] = Json::object();
  for (const TaskSeries& series : run.metrics.task_series)
    json["task"][series.metric.key] = encoded([&](const StepLine& line) {
      return series.values[static_cast<std::size_t>(&line - run.metrics.steps.data())];
    });
  return json;
}

/// Returns the norms of layers in at most kMostBins lines: "names", "step", and "values" by name.
Json layers_json(const RunReport& run) {
  const MetricsFile& file = run.metrics;
  Json json{{"names", file.layer_names}, {"step", Json::array()}, {"values", Json::array()}};
  std::vector<const LayerLine*> lines;
  for (const LayerLine& line : file.layer_lines)
    if (run.goodput.is_kept(file.steps[line.line])) lines.push_back(&line);
  const std::size_t distance = std::max<std::size_t>(1, (lines.size() + kMostBins - 1) / kMostBins);
  std::vector<std::vector<float>> values(file.layer_names.size());
  for (std::size_t i = 0; i < lines.size(); i += distance) {
    json["step"].push_back(file.steps[lines[i]->line].step);
    for (std::size_t name = 0; name < values.size(); ++name)
      values[name].push_back(static_cast<float>(lines[i]->values[name]));
  }
  for (const std::vector<float>& series : values) json["values"].push_back(base64(series));
  return json;
}

/// Returns the mean parts of a step in at most kMostBins bins.
Json parts_json(const std::vector<const StepLine*>& lines) {
  Json json{{"step", Json::array()},         {"train", Json::array()},
            {"comm_exposed", Json::array()}, {"data_wait", Json::array()},
            {"checkpoint", Json::array()},   {"validation", Json::array()}};
  const std::size_t width = std::max<std::size_t>(1, (lines.size() + kMostBins - 1) / kMostBins);
  for (std::size_t begin = 0; begin < lines.size(); begin += width) {
    const std::size_t end = std::min(begin + width, lines.size());
    const auto mean = [&](double StepLine::*part) {
      double sum = 0;
      for (std::size_t i = begin; i < end; ++i) sum += lines[i]->*part;
      return sum / static_cast<double>(end - begin);
    };
    const double comm_s = mean(&StepLine::comm_exposed_s);
    const double data_s = mean(&StepLine::data_wait_s);
    const double save_s = mean(&StepLine::save_s);
    const double validation_s = mean(&StepLine::validation_s);
    json["step"].push_back(lines[end - 1]->step);
    json["comm_exposed"].push_back(comm_s);
    json["data_wait"].push_back(data_s);
    json["checkpoint"].push_back(save_s);
    json["validation"].push_back(validation_s);
    json["train"].push_back(
        std::max(0.0, mean(&StepLine::step_time_s) - comm_s - data_s - save_s - validation_s));
  }
  return json;
}

Json spans_json(const Goodput& goodput) {
  Json spans = Json::array();
  for (const Span& span : goodput.spans)
    spans.push_back(
        {kActivityNames[static_cast<std::size_t>(span.what)], span.begin, span.end, span.attempt});
  return spans;
}

/// Returns rows [what, predicted, measured, unit] from layout.json; empty if it is missing or
/// damaged.
Json predictions_json(const RunReport& run) {
  Json rows = Json::array();
  if (run.layout.empty()) return rows;
  try {
    const Json layout = parse_json(run.layout, "layout.json");
    const auto sum_of = [&](const std::string& key) -> Json {
      double sum = 0;
      for (const Json& rank : layout.at("per_rank")) {
        const auto found = rank.find(key);
        if (found == rank.end() || !found->is_number()) return nullptr;
        sum += found->get<double>();
      }
      return sum;
    };
    constexpr std::array<std::array<const char*, 2>, 6> kMemory{
        {{"weight_bytes", "weights, all ranks"},
         {"main_bytes", "master weights, all ranks"},
         {"grad_bytes", "gradients, all ranks"},
         {"optimizer_bytes", "optimizer state, all ranks"},
         {"gathered_peak_bytes", "gathered weights at the peak, all ranks"},
         {"activation_peak_bytes", "activations at the peak, all ranks"}}};
    for (const auto& [key, text] : kMemory)
      rows.push_back({text, sum_of(std::string(key) + "_formula"), sum_of(key)});
    for (const Json& one : layout.at("collectives"))
      rows.push_back(
          {formatted("{} of {} ({}), sent by rank 0 in one step", one.value("operation", ""),
                     one.value("purpose", ""), one.value("group", "")),
           one.value("formula_bytes", Json()), one.value("moved_bytes", Json())});
  } catch (const std::exception&) {
    return Json::array();
  }
  return rows;
}

/// Returns rows [key, value of each run] of the configuration keys that differ between the runs.
Json differences_json(const std::vector<RunReport>& runs) {
  std::set<std::string> keys;
  for (const RunReport& run : runs)
    for (const auto& [key, value] : run.config) keys.insert(key);
  Json rows = Json::array();
  for (const std::string& key : keys) {
    Json values = Json::array();
    std::set<std::string> distinct;
    for (const RunReport& run : runs) {
      const auto found = run.config.find(key);
      values.push_back(found == run.config.end() ? Json(nullptr) : Json(found->second));
      distinct.insert(found == run.config.end() ? std::string("\0", 1) : found->second);
    }
    if (distinct.size() > 1) rows.push_back({key, values});
  }
  return rows;
}

/// Returns pairs of a step and its validation loss, or its validation reward if the run has one.
Json validations_json(const RunReport& run) {
  std::map<std::int64_t, double> values;  // the last one of a step counts
  for (const ValidationPoint& one : run.metrics.validations) {
    const double value = run.valid_reward ? one.reward : one.loss;
    if (std::isfinite(value)) values[one.step] = value;
  }
  Json json = Json::array();
  for (const auto& [step, value] : values) json.push_back({step, value});
  return json;
}

Json data_of(const std::vector<RunReport>& runs, double now_s) {
  Json data = to_json(runs);
  data["time"] = now_s;
  data["differences"] = differences_json(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunReport& run = runs[i];
    const std::vector<const StepLine*> lines = kept_lines(run);
    Json& json = data["runs"][i];
    json["summary"] = summary_of(run);
    json["begin"] = run.goodput.begin;
    json["series"] = series_json(run, lines);
    json["parts"] = parts_json(lines);
    json["layers"] = layers_json(run);
    json["spans"] = spans_json(run.goodput);
    json["predictions"] = predictions_json(run);
    json["validations"] = validations_json(run);
    for (std::size_t a = 0; a < run.attempts.size(); ++a) {
      json["attempts"][a]["ranks"] = run.attempts[a].ranks;
      json["attempts"][a]["nodes"] = run.attempts[a].nodes;
      json["attempts"][a]["failed"] = has_failed(run.attempts[a]);
    }
  }
  return data;
}

std::string_view page_file(std::string_view path) {
  for (const PageFile& file : page_files())
    if (file.path == path) return file.content;
  fail(ErrorKind::internal, "the report has no part {}", path);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// Splits the template at its marks and inserts the parts, so that no text of a part is searched.
std::string inserted(std::string_view page,
                     const std::vector<std::pair<std::string_view, std::string_view>>& parts) {
  std::string text;
  for (const auto& [mark, content] : parts) {
    const std::size_t at = page.find(mark);
    TRIREME_ASSERT(at != std::string_view::npos);
    text += page.substr(0, at);
    text += content;
    page.remove_prefix(at + mark.size());
  }
  text += page;
  return text;
}

}  // namespace

std::string html_report(const std::vector<RunReport>& runs, double now_s) {
  std::string data = json_text(data_of(runs, now_s));
  replace_all(data, "<", "\\u003c");  // so that no name can end the script element
  return inserted(page_file("/"), {{"@report.css@", page_file("/page/report.css")},
                                   {"@data@", data},
                                   {"@numbers.js@", page_file("/page/numbers.js")},
                                   {"@chart.js@", page_file("/page/chart.js")},
                                   {"@tables.js@", page_file("/page/tables.js")},
                                   {"@report.js@", page_file("/page/report.js")}});
}

}  // namespace trireme::report
