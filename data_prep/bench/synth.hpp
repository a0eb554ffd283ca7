#pragma once
#include <cstdint>
#include <string>

#include "core/fields.hpp"

namespace trireme::data_prep {

/// Options of `trireme-data synth`.
struct SynthConfig {
  std::string output;
  std::int64_t documents = 20000;
  std::int64_t seed = 1;
  bool force = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("output", self.output, "jsonl file", {.placeholder = "FILE", .required = true});
    visit("documents", self.documents, "number of lines, about 210 bytes each",
          {.placeholder = "N", .least = 1, .most = 10'000'000});
    visit("seed", self.seed, "random seed; another seed gives other documents about the same facts",
          {.placeholder = "S"});
    visit("force", self.force, "replace an existing file with other content");
  }
};

/// Returns document `index` of the built-in corpus: a story, sums, or questions and answers, in
/// English or Chinese. The corpus has few, consistent facts (an animal lives in one place and likes
/// one food), so that a tiny model learns it in minutes. A pure function of (seed, index).
std::string synth_document(std::uint64_t seed, std::uint64_t index);

/// Writes `count` lines {"text": ...}, which are all in memory. Leaves a file with the same content
/// unchanged. Throws Error(usage) if `path` has other content and `force` is false.
void write_synth(const std::string& path, std::int64_t count, std::int64_t seed, bool force);

}  // namespace trireme::data_prep
