#pragma once
#include <cstdint>
#include <vector>

#include "data/batch.hpp"

namespace trireme {

/// Sample i as one row: documents of random lengths, one after another, the rest padding. Every
/// fifth sample is all one-token documents, so that it has no target. A function of (index,
/// length, vocab_size) only.
Batch make_rows(const std::vector<std::int64_t>& indices, std::int64_t length,
                std::int64_t vocab_size);

}  // namespace trireme
