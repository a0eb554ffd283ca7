#pragma once
#include <cstdint>
#include <string>

namespace trireme {

/// Document `index` of the built-in corpus: a story, sums, or questions and answers, in English or
/// Chinese. Small world, consistent facts (an animal lives in one place, likes one food), so that a
/// tiny model learns it in minutes. A pure function of (seed, index).
std::string synth_document(std::uint64_t seed, std::uint64_t index);

/// `count` lines {"text": ...}. Throws Error(usage) if count is not in [1, 10^7] (all lines are
/// held in memory), or if `path` holds something else already and not `force`; a file with the same
/// content is left as it is.
void write_synth(const std::string& path, std::int64_t count, std::int64_t seed, bool force);

}  // namespace trireme
