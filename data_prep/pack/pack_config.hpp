#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/sequences/pack_documents.hpp"
#include "data_prep/documents/document_config.hpp"
#include "data_prep/input/input_format.hpp"
#include "data_prep/progress.hpp"
#include "data_prep/tokenizer_path.hpp"
#include "data_prep/worker_pool.hpp"

namespace trireme::data_prep {

/// Options of `trireme-data pack`. To add a setting: a member and a visit line, here or, for
/// documents, in DocumentConfig; with Identity::unless_default if it affects the bytes of the set.
struct PackConfig {
  std::string tokenizer;
  std::vector<std::string> inputs;
  std::string output;
  std::int64_t seq_len = 512;
  DocumentConfig documents;
  std::int64_t max_bad = -1;
  std::int64_t unit_bytes = std::int64_t{256} << 20;
  std::int64_t threads = 0;
  std::string schedule = "dynamic";
  std::string part = "1/1";
  std::string progress = "auto";

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("tokenizer", self.tokenizer, kTokenizerPathHelp,
          {.placeholder = "DIR|FILE", .required = true});
    visit("input", self.inputs, input_help(), {.placeholder = "FILE...", .required = true});
    visit("output", self.output, "output directory: new, empty, or of the same pack",
          {.placeholder = "DIR", .required = true});
    visit("seq_len", self.seq_len,
          "sequence length to prepare; training with another length also works",
          {.placeholder = "L", .least = data::kMinSeqLen, .most = data::kMaxSeqLen});
    DocumentConfig::fields(self.documents, visit);
    visit("max_bad", self.max_bad,
          "maximum number of invalid records; -1: no limit (they are counted and listed)",
          {.placeholder = "N", .least = -1});
    visit("unit_bytes", self.unit_bytes, "bytes of input per shard; determines the shards",
          {.placeholder = "BYTES",
           .least = 1,
           .most = double{1ULL << 34},
           .identity = Identity::always});
    visit("threads", self.threads, "number of threads; 0: all CPUs of this process",
          {.placeholder = "N", .least = 0, .most = kMaxThreads});
    visit("schedule", self.schedule,
          "assignment of shards: to the next free rank, or a fixed set per rank",
          {.values = {"dynamic", "static"}});
    visit("part", self.part,
          "K/N: make part K of N of one set, for processes without MPI (a job array)",
          {.placeholder = "K/N"});
    visit("progress", self.progress, "progress display", {.values = progress_mode_names()});
  }
};

void check(const PackConfig& config, Problems& problems);

/// A part of a set.
struct PackPart {
  std::size_t index = 0;
  std::size_t count = 1;

  [[nodiscard]] bool is_whole() const { return count == 1; }
};

/// Parses "K/N" with K in [1, N]; nullopt for any other text.
std::optional<PackPart> parse_part(std::string_view text);

}  // namespace trireme::data_prep
