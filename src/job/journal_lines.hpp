#pragma once
#include <string_view>

#include "core/files/json.hpp"
#include "job/journal.hpp"

/// One line of the journal, as text and as part of a leg.
namespace trireme {

/// Adds a line without its line feed to what is known. False: it is not one of ours, not whole or
/// out of order; then nothing is changed.
bool take_line(std::string_view line, JournalContent& content);

void put_start(Json& object, const LegStart& start);

}  // namespace trireme
