#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "core/fields.hpp"
#include "core/problems.hpp"
#include "data/sequences/pack_documents.hpp"
#include "data_prep/import/import_format.hpp"
#include "data_prep/progress.hpp"

namespace trireme::data_prep {

/// Options of `trireme-data import`. All except the last one affect the bytes of the set.
struct ImportConfig {
  std::string format;
  std::vector<std::string> inputs;
  std::string output;
  std::string tokenizer;
  std::int64_t vocab_size = 0;
  std::int64_t seq_len = 512;
  std::int64_t eot_id = kEotOfFormat;
  std::string eot = "auto";
  std::int64_t shard_tokens = std::int64_t{1} << 26;
  std::string progress = "auto";

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("format", self.format, "program that wrote the inputs",
          {.values = {"megatron", "llm.c"}, .required = true});
    visit("input", self.inputs,
          "input files in order; megatron: prefix or .bin, with the .idx beside it",
          {.placeholder = "FILE...", .required = true});
    visit("output", self.output, "output directory: new, empty, or of the same import",
          {.placeholder = "DIR", .required = true});
    visit("tokenizer", self.tokenizer,
          "tokenizer that made the tokens (any path that pack accepts); without it, checkpoints of "
          "the set cannot generate",
          {.placeholder = "DIR|FILE"});
    visit("vocab_size", self.vocab_size,
          "vocabulary size if there is no tokenizer (ids are below V)", {.placeholder = "V"});
    visit("seq_len", self.seq_len,
          "sequence length to prepare; training with another length also works",
          {.placeholder = "L", .least = data::kMinSeqLen, .most = data::kMaxSeqLen});
    visit("eot_id", self.eot_id,
          "llm.c: token at document boundaries; -1: none; -2: 50256 (u32 files: 128000)",
          {.placeholder = "ID"});
    visit("eot", self.eot,
          "llm.c: the token starts or ends a document; auto: start if the file begins with it",
          {.values = {"auto", "start", "end"}});
    visit(
        "shard_tokens", self.shard_tokens, "approximate number of tokens per shard",
        {.placeholder = "N", .least = 1, .most = double{1ULL << 31}, .identity = Identity::always});
    visit("progress", self.progress, "progress display", {.values = progress_mode_names()});
  }
};

void check(const ImportConfig& config, Problems& problems);

/// The result of an import, over all ranks.
struct ImportReport {
  std::uint64_t partitions = 0;
  std::uint64_t kept = 0;  // shards that already existed
  double seconds = 0;
};

/// Makes a pretrain set from token files of another program, without tokenizing again.
///
/// Each input is cut into parts of shard_tokens tokens. A partition goes from the first document
/// that starts in its part to the first document that starts in the next part. If no document
/// starts in a part, the partition begins at the first token of the part. The rest at the end of an
/// input joins the previous part if its only document is not longer than a part. So only documents
/// longer than a part are cut.
///
/// Each partition becomes one shard. The directory is a pure function of inputs and config, can be
/// resumed after a kill, and ranks split the partitions like in pack(). Ids are not changed, but
/// checked against the vocabulary.
///   memory  about two parts in the token width of the set, and 28 bytes per document
/// Collective over `world` (null: this process alone). Throws like pack(), and Error(usage) if an
/// input has changed since the existing shards were made.
ImportReport import_tokens(const ImportConfig& config, comm::Communicator* world);

}  // namespace trireme::data_prep
