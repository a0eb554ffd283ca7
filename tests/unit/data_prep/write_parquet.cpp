#include "unit/data_prep/write_parquet.hpp"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/json/from_string.h>
#include <arrow/util/compression.h>
#include <parquet/arrow/writer.h>

#include <map>

namespace trireme::testing {
namespace {

std::shared_ptr<arrow::DataType> type_named(const std::string& name) {
  using namespace arrow;
  static const std::map<std::string, std::shared_ptr<DataType>> types{
      {"utf8", utf8()},
      {"large_utf8", large_utf8()},
      {"binary", binary()},
      {"int64", int64()},
      {"uint8", uint8()},
      {"float64", float64()},
      {"float32", float32()},
      {"boolean", boolean()},
      {"date32", date32()},
      {"lists", list(list(int32()))},
      {"pairs", list(struct_({field("k", utf8()), field("n", int32())}))},
      {"map", map(utf8(), int32())},
      {"category", dictionary(int32(), utf8())},
      {"messages",
       list(struct_({field("role", utf8()), field("content", utf8()), field("weight", int64())}))}};
  return types.at(name);
}

arrow::Status write_file(const std::string& path, const std::vector<ParquetColumn>& columns,
                         std::int64_t group_rows, const std::string& codec) {
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  for (const ParquetColumn& column : columns) {
    const auto type = type_named(column.type);
    const bool is_category = column.type == "category";
    ARROW_ASSIGN_OR_RAISE(auto values, arrow::json::ArrayFromJSONString(
                                           is_category ? arrow::utf8() : type, column.json));
    if (is_category) {
      arrow::StringDictionary32Builder builder;
      ARROW_RETURN_NOT_OK(builder.AppendArray(*values));
      ARROW_ASSIGN_OR_RAISE(values, builder.Finish());
    }
    fields.push_back(arrow::field(column.name, type));
    arrays.push_back(values);
  }
  const auto table = arrow::Table::Make(arrow::schema(fields), arrays);
  ARROW_ASSIGN_OR_RAISE(const auto file, arrow::io::FileOutputStream::Open(path));
  ARROW_ASSIGN_OR_RAISE(const auto compression, arrow::util::Codec::GetCompressionType(codec));
  const auto properties = parquet::WriterProperties::Builder()
                              .compression(compression)
                              ->enable_page_checksum()
                              ->max_row_group_length(group_rows)
                              ->build();
  const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  ARROW_RETURN_NOT_OK(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), file,
                                                 group_rows, properties, arrow_properties));
  return file->Close();
}

}  // namespace

extern "C" void trireme_write_parquet(const std::string& path,
                                      const std::vector<ParquetColumn>& columns,
                                      std::int64_t group_rows, const std::string& codec,
                                      std::string& problem);

extern "C" void trireme_write_parquet(const std::string& path,
                                      const std::vector<ParquetColumn>& columns,
                                      std::int64_t group_rows, const std::string& codec,
                                      std::string& problem) {
  const arrow::Status status = write_file(path, columns, group_rows, codec);
  problem = status.ok() ? "" : status.ToString();
}

}  // namespace trireme::testing
