#pragma once
#include "comm/communicator.hpp"
#include "data_prep/tokenizer/tokenizer_jobs.hpp"
#include "text/learn/word_counter.hpp"

namespace trireme::data_prep {

/// Counts the words of every text of config.inputs. Returns the counts on rank 0, and an empty
/// counter on the other ranks. With --special-in-text allow, `reserved` tokens are separate words.
///
/// Collective over `world` (null: this process alone). The inputs are cut into chunks of 4 MiB,
/// split over ranks and threads. Then one rank per word (by hash) adds its counts, and rank 0 gets
/// the sums. The counts depend only on the texts, not on ranks or threads. Invalid records are
/// skipped with a warning. Throws Error(usage, data) like pack, on the failing rank, and
/// Error(data) if there is no text at all.
///   memory  the distinct words of each thread, and twice their bytes if there are several ranks
text::WordCounter count_words(const TrainTokenizerConfig& config,
                              const std::vector<text::ReservedToken>& reserved,
                              comm::Communicator* world);

/// Adds the counts of all ranks on rank 0; the other counters are empty afterwards. Collective.
void gather_words(text::WordCounter& words, comm::Communicator& world);

}  // namespace trireme::data_prep
