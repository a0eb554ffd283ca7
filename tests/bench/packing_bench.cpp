/// Measures padding and speed of pack_documents for many distributions of document lengths.
///   packing_bench [--documents N] [SET...]    SET: directories that pack made, for real lengths

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numbers>
#include <random>
#include <string>

#include "core/files/hdf5.hpp"
#include "core/timer.hpp"
#include "data/sequences/pack_documents.hpp"
#include "data/shards/token_set.hpp"

namespace trireme {
namespace {

/// Draws random numbers that are the same with every standard library.
class Draw {
 public:
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  double between(double least, double past) { return least + (past - least) * uniform(); }

  double normal() {
    return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  std::mt19937_64 random_{1};
};

struct Kind {
  const char* name;
  std::function<double(Draw&)> length;
};

const std::vector<Kind> kKinds{
    {"uniform 40-110", [](Draw& d) { return d.between(40, 111); }},
    {"uniform 69-75", [](Draw& d) { return d.between(69, 76); }},
    {"normal 72, sd 12", [](Draw& d) { return 72 + 12 * d.normal(); }},
    {"constant 72", [](Draw&) { return 72.0; }},
    {"log-normal, median 886", [](Draw& d) { return 886 * std::exp(0.75 * d.normal()); }},
    {"log-normal, median 200", [](Draw& d) { return 200 * std::exp(d.normal()); }},
    {"bimodal 60 or 900",
     [](Draw& d) { return d.uniform() < 0.7 ? 60 + 8 * d.normal() : 900 + 100 * d.normal(); }},
    {"bimodal 700 or 1,100",
     [](Draw& d) { return (d.uniform() < 0.5 ? 700 : 1100) + 20 * d.normal(); }},
    {"Pareto 1.1 from 20",
     [](Draw& d) { return std::min(1e5, 20 * std::pow(1 - d.uniform(), -1 / 1.1)); }},
    {"uniform 1-2,048", [](Draw& d) { return d.between(1, 2049); }},
    {"uniform 300-800", [](Draw& d) { return d.between(300, 801); }}};

/// Prints one line of a Markdown table. `shards`: [D+1] each.
void measure(const std::string& name, const std::vector<std::vector<std::uint64_t>>& shards) {
  std::printf("| %s |", name.c_str());
  for (const std::int64_t seq_len : {512, 2048, 8192}) {
    std::uint64_t documents = 0;
    std::uint64_t tokens = 0;
    std::uint64_t sequences = 0;
    const Timer timer;
    for (const auto& offset : shards) {
      documents += offset.size() - 1;
      tokens += offset.back();
      sequences += data::pack_documents(offset, seq_len).num_sequences();
    }
    const double seconds = timer.seconds();
    const double room = static_cast<double>(sequences) * static_cast<double>(seq_len);
    std::printf(" %.4f %% (%.1f M/s) |", 100 * (1 - static_cast<double>(tokens) / room),
                static_cast<double>(documents) / seconds / 1e6);
  }
  std::printf("\n");
}

void run(std::size_t documents, const std::vector<std::string>& sets) {
  std::printf("| lengths | 512 | 2,048 | 8,192 |\n|---|---|---|---|\n");
  for (const Kind& kind : kKinds) {
    Draw draw;
    std::vector<std::uint64_t> offset{0};
    for (std::size_t i = 0; i < documents; ++i)
      offset.push_back(offset.back() +
                       static_cast<std::uint64_t>(std::max(1.0, kind.length(draw))));
    measure(kind.name, {offset});
  }
  hdf5_init();
  for (const std::string& folder : sets) {
    const data::TokenSet set = data::TokenSet::open(folder);
    std::vector<std::vector<std::uint64_t>> shards;
    for (std::size_t i = 0; i < set.num_shards(); ++i)
      shards.push_back(set.shard(i).document_offsets());
    measure(folder, shards);
  }
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  std::size_t documents = 1'000'000;
  if (arguments.size() >= 2 && arguments[0] == "--documents") {
    documents = std::stoul(arguments[1]);
    arguments.erase(arguments.begin(), arguments.begin() + 2);
  }
  trireme::run(documents, arguments);
  return 0;
}
