#include "core/error.hpp"
#include "data_prep/input/input_format.hpp"

/// The row of Parquet in a build without Apache Arrow: it recognizes the files and refuses them.
namespace trireme::data_prep {

InputFormat parquet_format() {
  InputFormat format = json_lines(Compression::none);
  format.name = "parquet";
  format.suffix = ".parquet";
  format.position = "row";
  format.recognises = is_parquet;
  format.measure = [](InputFile& file) {
    fail(ErrorKind::data,
         "--input {} is a Parquet file, and this program was built without Apache Arrow. Build with "
         "Arrow (docs/install.md, \"Parquet\"), or write the records as JSON lines",
         file.path.string());
  };
  format.by_content = nullptr;
  return format;
}

}  // namespace trireme::data_prep
