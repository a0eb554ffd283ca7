#include "comm/start_report.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/join.hpp"

namespace trireme::comm {
namespace {

constexpr std::size_t kMostParts = 20;

/// Returns "n2" for "n2.cluster.example": node names and host names may differ in the domain.
std::string short_name(const std::string& node) {
  return node.substr(0, node.find('.'));
}

std::string shortened(const std::vector<std::string>& parts) {
  const std::size_t shown = std::min(parts.size(), kMostParts);
  std::string text = joined(
      std::vector<std::string>(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(shown)),
      ", ");
  if (parts.size() > shown) text += formatted(" and {} more", parts.size() - shown);
  return text;
}

struct Missing {
  std::vector<int> ranks;           // ranks that have not started
  std::vector<std::string> nodes;   // nodes of the step with ranks that have not started
  std::vector<std::string> counts;  // these nodes with numbers
  std::vector<int> silent;          // ranks that started and then stopped updating their mark
};

Missing missing_of(const StartView& view) {
  Missing missing;
  std::map<std::string, int> begun;
  for (int rank = 0; rank < view.size; ++rank) {
    const auto mark = view.marks.find(rank);
    if (mark == view.marks.end()) {
      missing.ranks.push_back(rank);
      continue;
    }
    ++begun[short_name(mark->second.node)];
    if (mark->second.behind_s > view.silent_s) missing.silent.push_back(rank);
  }
  for (const scheduler::StepNode& node : view.nodes) {
    const int there = begun[short_name(node.name)];
    if (there >= node.tasks) continue;
    missing.nodes.push_back(node.name);
    missing.counts.push_back(
        formatted("{} ({} of {} ranks have started)", node.name, there, node.tasks));
  }
  return missing;
}

}  // namespace

std::string ranges_text(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    parts.push_back(last == i ? cat(numbers[i]) : formatted("{}-{}", numbers[i], numbers[last]));
    i = last + 1;
  }
  return shortened(parts);
}

StartFailure report_start(const StartView& view) {
  StartFailure failure{
      formatted("the start took longer than {} s (train.start_timeout_s)", view.limit_s), view.rank,
      view.node, -1, ""};
  std::string& text = failure.message;
  if (view.marks.empty()) {
    text += formatted(
        ": rank {} of {} ranks (host {}) still waits for other ranks in MPI_Init, and no shared directory shows which ranks are missing. A rank or its node has not started: compare the hosts of these messages with the nodes of the job",
        view.rank, view.size, view.node);
    return failure;
  }
  const Missing missing = missing_of(view);
  if (!missing.ranks.empty()) {
    failure.missing_rank = missing.ranks.front();
    text += formatted("; {} of {} ranks have not started: {} {}", missing.ranks.size(), view.size,
                      missing.ranks.size() == 1 ? "rank" : "ranks", ranges_text(missing.ranks));
    if (!missing.nodes.empty()) {
      failure.missing_node = missing.nodes.front();
      text += formatted(", on {} {}", missing.nodes.size() == 1 ? "node" : "nodes",
                        shortened(missing.counts));
    }
  }
  if (!missing.silent.empty()) {
    std::vector<std::string> names;
    for (const int rank : missing.silent) {
      const StartMark& mark = view.marks.at(rank);
      names.push_back(formatted("rank {} (host {}, pid {})", rank, mark.node, mark.pid));
    }
    if (failure.missing_rank < 0) {
      failure.missing_rank = missing.silent.front();
      failure.missing_node = view.marks.at(missing.silent.front()).node;
    }
    text += formatted("; started, and then stopped or lost with its node: {}", shortened(names));
  }
  if (failure.missing_rank < 0) {
    text += formatted(
        "; all {} ranks have started, but MPI does not connect them. Check the network between the hosts: OMPI_MCA_btl_tcp_if_include must name an interface that all of them have",
        view.size);
  }
  return failure;
}

}  // namespace trireme::comm
