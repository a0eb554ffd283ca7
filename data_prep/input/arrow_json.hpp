#pragma once
#include <arrow/type_fwd.h>

#include <cstdint>
#include <string>

namespace trireme::data_prep {

/// Appends row `row` of the batch to `out` as one JSON object with a member for each column.
///
/// The object equals json.dumps(row) of Python for booleans, numbers, texts, lists, structs and
/// null values, except for spaces and escapes. Bytes become a text. A map with texts as keys
/// becomes an object. Other types, for example times and decimal numbers, become a text as Arrow
/// prints them.
void append_row(const arrow::RecordBatch& batch, std::int64_t row, std::string& out);

}  // namespace trireme::data_prep
