#include "pipeline/draw.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::pipeline {
namespace {

constexpr double kRow = 24;        // pixels
constexpr double kMargin = 60;     // left margin in pixels, for the rank names
constexpr double kLongest = 1600;  // width of the whole time axis in pixels
constexpr std::array<std::string_view, 4> kColours{"#7fb2e5", "#f2b36f", "#f2d16f",
                                                   "#9fd39b"};  // indexed by ActionKind

}  // namespace

std::string draw(const Schedule& schedule, const Timing& timing) {
  const Simulation simulation = simulate(schedule, timing);
  const double scale = std::min(16.0, kLongest / std::max(simulation.makespan, 1e-300));
  const double width = kMargin + simulation.makespan * scale + 10;
  const double height = kRow * static_cast<double>(schedule.lists.size() + 1);
  const auto number = [](double value) { return number_text(std::round(value * 100) / 100); };
  std::string svg = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" "
      "font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      number(width), number(height));
  for (std::size_t rank = 0; rank < schedule.lists.size(); ++rank) {
    const double top = kRow * static_cast<double>(rank) + 8;
    svg += formatted("<text x=\"4\" y=\"{}\">rank {}</text>\n", number(top + 14), rank);
    const std::vector<int> stages = schedule.placement.stages_of(static_cast<int>(rank));
    for (std::size_t i = 0; i < simulation.begins[rank].size(); ++i) {
      const StageAction& action = schedule.lists[rank][i];
      const double left = kMargin + simulation.begins[rank][i] * scale;
      const double length = timing.of(action.stage).of(action.kind) * scale;
      const auto later = std::find(stages.begin(), stages.end(), action.stage) - stages.begin();
      svg += formatted(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"20\" fill=\"{}\" stroke=\"#fff\" "
          "fill-opacity=\"{}\"><title>{}</title></rect>\n",
          number(left), number(top), number(length),
          kColours[static_cast<std::size_t>(action.kind)], later == 0 ? "0.6" : "1",
          text_of(action));
      if (length >= 10)
        svg += formatted("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                         number(left + length / 2), number(top + 14), action.micro_batch);
    }
  }
  return svg + "</svg>\n";
}

}  // namespace trireme::pipeline
