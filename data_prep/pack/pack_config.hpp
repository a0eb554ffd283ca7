#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/sequences/pack_documents.hpp"
#include "data_prep/documents/document_config.hpp"
#include "data_prep/progress.hpp"
#include "data_prep/tokenizer_place.hpp"
#include "data_prep/worker_pool.hpp"

namespace trireme {

/// `trireme-data pack`. One more setting: a member and a visit line, here or, if it is about
/// documents, in DocumentConfig; with Identity::unless_default if it decides bytes.
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
    visit("tokenizer", self.tokenizer, kTokenizerPlaceHelp,
          {.placeholder = "DIR|FILE", .required = true});
    visit("input", self.inputs,
          "jsonl, plain or as .gz or .zst: files, folders, patterns; in order",
          {.placeholder = "FILE...", .required = true});
    visit("output", self.output, "folder: new, empty, or of the same pack",
          {.placeholder = "DIR", .required = true});
    visit("seq_len", self.seq_len,
          "sequence length to prepare; training at another one works as well",
          {.placeholder = "L", .least = kLeastSeqLen, .most = kMostSeqLen});
    DocumentConfig::fields(self.documents, visit);
    visit("max_bad", self.max_bad,
          "fail past this many bad lines; -1: any number, they are counted and listed",
          {.placeholder = "N", .least = -1});
    visit("unit_bytes", self.unit_bytes, "of input to one shard; decides the shards",
          {.placeholder = "BYTES",
           .least = 1,
           .most = double{1ULL << 34},
           .identity = Identity::always});
    visit("threads", self.threads, "0: all processors at hand",
          {.placeholder = "N", .least = 0, .most = kMaxThreads});
    visit("schedule", self.schedule, "shards to ranks: to whoever is free, or a fixed share each",
          {.values = {"dynamic", "static"}});
    visit("part", self.part,
          "K/N: share K of N that processes without MPI between them (a job array) make of one set",
          {.placeholder = "K/N"});
    visit("progress", self.progress, "how progress is shown", {.values = progress_mode_names()});
  }
};

void check(const PackConfig& config, Problems& problems);

/// A share of a set.
struct PackPart {
  std::size_t index = 0;
  std::size_t count = 1;

  [[nodiscard]] bool is_whole() const { return count == 1; }
};

/// Of "K/N", K in [1, N]; none: it is not that.
std::optional<PackPart> parse_part(std::string_view text);

}  // namespace trireme
