#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/scheduler.hpp"

namespace trireme {

/// The kind for a job: of `partition` ("" : the default one), with GPUs if any has some, the one with
/// most nodes. None: there is no such partition.
std::optional<NodeKind> choose_kind(const std::vector<NodeKind>& kinds,
                                    const std::string& partition);

/// The most that a card of this type is sold with, bytes; none: a type not known here.
/// Source: Nvidia's data sheets, 2025.
std::optional<std::int64_t> memory_of_gpu(std::string_view type);

}  // namespace trireme
