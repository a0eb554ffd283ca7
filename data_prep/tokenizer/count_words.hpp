#pragma once
#include "comm/communicator.hpp"
#include "data_prep/tokenizer/tokenizer_jobs.hpp"
#include "text/learn/word_counter.hpp"

namespace trireme {

/// The words of every text of config.inputs, on rank 0; empty on the other ranks. `reserved` tokens
/// are words of their own with --special-in-text allow.
///
/// Collective over `world` (null: this process alone). The inputs are cut into chunks of 4 MiB that
/// ranks take in turn and threads one after another; every word then has one rank that adds its
/// counts, by hash, and rank 0 gets the sums. The counts depend on the texts alone, not on ranks or
/// threads. Bad lines are left out with a warning. Throws Error(usage, data) as pack, on the rank
/// that meets it, and Error(data) if there is no text at all.
///   memory  the distinct words a thread has seen, for each thread, and twice their bytes when
///           there are more ranks than one
WordCounter count_words(const TrainTokenizerConfig& config,
                        const std::vector<ReservedToken>& reserved, Communicator* world);

/// Adds up what the ranks of `world` counted, on rank 0; the other counters are
/// empty then. Collective.
void gather_words(WordCounter& words, Communicator& world);

}  // namespace trireme
