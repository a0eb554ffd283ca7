#pragma once
#include <cstdint>
#include <string>
#include <vector>

/// The interface of a module that writes Parquet files for tests. Arrow needs a symbol scope of
/// its own, see data_prep/input/parquet_module.hpp.
namespace trireme::testing {

struct ParquetColumn {
  std::string name;
  std::string type;  // a key of the table in write_parquet.cpp
  std::string json;  // the values as one JSON array, in the form of arrow::json
};

/// Writes the columns with page checksums; `problem` is "" if the file is written.
using WriteParquet = void(const std::string& path, const std::vector<ParquetColumn>& columns,
                          std::int64_t group_rows, const std::string& codec, std::string& problem);

}  // namespace trireme::testing
