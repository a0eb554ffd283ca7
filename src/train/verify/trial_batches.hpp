#pragma once
#include <cstdint>
#include <vector>

#include "data/batch.hpp"

namespace trireme {

/// Returns one row per sample: documents of random lengths, then padding. Every fifth sample
/// consists of one-token documents and has no target. The result depends only on the arguments.
Batch make_rows(const std::vector<std::int64_t>& indices, std::int64_t length,
                std::int64_t vocab_size);

}  // namespace trireme
