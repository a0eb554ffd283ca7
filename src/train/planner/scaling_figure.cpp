#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "core/error.hpp"
#include "core/format_count.hpp"
#include "train/planner/scaling.hpp"

/// The figure of a scaling study: two panels with a logarithmic axis of ranks.
namespace trireme::planner {
namespace {

constexpr double kWidth = 760;
constexpr double kLeft = 80;
constexpr double kRight = 730;

struct Panel {
  double top;
  double bottom;
  double least;  // range of the values, in decades if logarithmic
  double most;
  bool is_logarithmic;

  [[nodiscard]] double y(double value) const {
    const double at = is_logarithmic ? std::log10(value) : value;
    return bottom - (at - least) / (most - least) * (bottom - top);
  }
};

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return formatted("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", number(x), number(y),
                   anchor, text);
}

std::string line(double x1, double y1, double x2, double y2, std::string_view style) {
  return formatted("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" {}/>\n", number(x1), number(y1),
                   number(x2), number(y2), style);
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace

std::string scaling_figure(std::span<const ScalingPoint> points, const std::string& title) {
  TRIREME_ASSERT(!points.empty());
  const double most_ranks = std::max(2, points.back().ranks);
  const double first = std::log2(points.front().ranks);
  const double span = std::max(1.0, std::log2(most_ranks) - first);
  const auto x_of = [&](int ranks) {
    return kLeft + (std::log2(ranks) - first) / span * (kRight - kLeft);
  };
  const ScalingPoint& base = *std::ranges::find(points, false, &ScalingPoint::is_predicted);
  const double per_rank = base.tokens_per_s / base.ranks;
  double least = per_rank * points.front().ranks;
  double most = per_rank * most_ranks;
  for (const ScalingPoint& point : points) {
    least = std::min(least, point.tokens_per_s);
    most = std::max(most, point.tokens_per_s);
  }
  const Panel throughput{50, 270, std::floor(std::log10(least)), std::ceil(std::log10(most)), true};
  const Panel efficiency{320, 470, 0, 1.2, false};

  std::string svg = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} 520\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      number(kWidth));
  svg += text_at(kLeft, 22, "start", escaped(title));
  constexpr std::string_view kGrid = "stroke=\"#ddd\"";
  for (double decade = throughput.least; decade <= throughput.most; ++decade) {
    const double value = std::pow(10, decade);
    svg += line(kLeft, throughput.y(value), kRight, throughput.y(value), kGrid);
    svg += text_at(kLeft - 6, throughput.y(value) + 4, "end", format_count(value));
  }
  for (const double value : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    svg += line(kLeft, efficiency.y(value), kRight, efficiency.y(value), kGrid);
    svg += text_at(kLeft - 6, efficiency.y(value) + 4, "end", number(100 * value) + " %");
  }
  svg += text_at(kLeft, throughput.top - 8, "start", "tokens/s (dashed: ideal)");
  svg += text_at(kLeft, efficiency.top - 8, "start", "efficiency");
  svg += text_at((kLeft + kRight) / 2, 510, "middle", "ranks");
  svg += line(x_of(points.front().ranks), throughput.y(per_rank * points.front().ranks),
              x_of(points.back().ranks), throughput.y(per_rank * points.back().ranks),
              "stroke=\"#888\" stroke-dasharray=\"5 4\"");
  for (const ScalingPoint& point : points) {
    const double x = x_of(point.ranks);
    const std::string kind = point.is_predicted ? "predicted" : "measured";
    for (const auto& [panel, value] : {std::pair(throughput, point.tokens_per_s),
                                       std::pair(efficiency, std::min(1.2, point.efficiency))}) {
      svg += formatted(
          "<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"5\" stroke=\"#1f5fa8\" "
          "stroke-width=\"2\" fill=\"{}\"><title>{} on {} ranks: {} tokens/s, efficiency {} "
          "%</title></circle>\n",
          kind, number(x), number(panel.y(value)), point.is_predicted ? "white" : "#1f5fa8", kind,
          point.ranks, format_count(point.tokens_per_s), number(100 * point.efficiency));
    }
    svg += text_at(x, 488, "middle", cat(point.ranks));
  }
  svg += "<circle cx=\"500\" cy=\"18\" r=\"5\" fill=\"#1f5fa8\"/>\n" +
         text_at(510, 22, "start", "measured");
  svg +=
      "<circle cx=\"590\" cy=\"18\" r=\"5\" stroke=\"#1f5fa8\" stroke-width=\"2\" "
      "fill=\"white\"/>\n" +
      text_at(600, 22, "start", "predicted, not measured");
  return svg + "</svg>\n";
}

}  // namespace trireme::planner
