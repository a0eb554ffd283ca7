#pragma once
#include <cstdint>
#include <string>

#include "core/fields.hpp"

namespace trireme {

/// `trireme-data synth`.
struct SynthConfig {
  std::string output;
  std::int64_t documents = 20000;
  std::int64_t seed = 1;
  bool force = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("output", self.output, "jsonl file", {.placeholder = "FILE", .required = true});
    visit("documents", self.documents, "lines, about 210 bytes each",
          {.placeholder = "N", .least = 1, .most = 10'000'000});
    visit("seed", self.seed, "another seed gives other documents of the same world",
          {.placeholder = "S"});
    visit("force", self.force, "replace a file that holds something else");
  }
};

/// Document `index` of the built-in corpus: a story, sums, or questions and answers, in English or
/// Chinese. Small world, consistent facts (an animal lives in one place, likes one food), so that a
/// tiny model learns it in minutes. A pure function of (seed, index).
std::string synth_document(std::uint64_t seed, std::uint64_t index);

/// `count` lines {"text": ...}, all held in memory. Throws Error(usage) if `path` holds something
/// else already and not `force`; a file with the same content is left as it is.
void write_synth(const std::string& path, std::int64_t count, std::int64_t seed, bool force);

}  // namespace trireme
