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

namespace trireme {

/// `trireme-data import`. All but the last decides the bytes of the set.
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
    visit("format", self.format, "who wrote the inputs",
          {.values = {"megatron", "llm.c"}, .required = true});
    visit("input", self.inputs, "in order; megatron: prefix or .bin, its .idx beside it",
          {.placeholder = "FILE...", .required = true});
    visit("output", self.output, "folder: new, empty, or of the same import",
          {.placeholder = "DIR", .required = true});
    visit("tokenizer", self.tokenizer,
          "the one that made the tokens (any place that pack takes); without it checkpoints of the "
          "set cannot generate",
          {.placeholder = "DIR|FILE"});
    visit("vocab_size", self.vocab_size, "without a tokenizer: ids are below V",
          {.placeholder = "V"});
    visit("seq_len", self.seq_len,
          "sequence length to prepare; training at another one works as well",
          {.placeholder = "L", .least = kLeastSeqLen, .most = kMostSeqLen});
    visit("eot_id", self.eot_id,
          "llm.c: token at document borders; -1: none; -2: 50256, of u32 files 128000",
          {.placeholder = "ID"});
    visit("eot", self.eot, "llm.c: the token starts or ends a document; auto: as the file begins",
          {.values = {"auto", "start", "end"}});
    visit(
        "shard_tokens", self.shard_tokens, "tokens of a shard, about",
        {.placeholder = "N", .least = 1, .most = double{1ULL << 31}, .identity = Identity::always});
    visit("progress", self.progress, "how progress is shown", {.values = progress_mode_names()});
  }
};

void check(const ImportConfig& config, Problems& problems);

/// What import did, over all ranks.
struct ImportReport {
  std::uint64_t partitions = 0;
  std::uint64_t kept = 0;  // shards that lay there already
  double seconds = 0;
};

/// Makes a pretrain set from token files of another program, without tokenizing anew.
///
/// Each input is cut every shard_tokens; a partition goes from the first document that starts in
/// its part to the first one that starts in the next (a part in which none starts begins at its
/// first token; the rest at the end of an input joins the part before if its only document is no
/// longer than a part: so only documents longer than a part are cut). One partition becomes one
/// shard: the folder is a pure function of inputs and config, goes on after a kill, and ranks share
/// the partitions as in pack(). Ids are kept as they are and checked against the vocabulary.
///   memory  about two parts in the set's token width, 28 bytes a document, whatever the input
/// Collective over `world` (null: this process alone). Throws as pack(), and Error(usage)
/// if an input is not what the shards that lie there were made of.
ImportReport import_tokens(const ImportConfig& config, Communicator* world);

}  // namespace trireme
