#include "data_prep/input/arrow_json.hpp"

#include <arrow/api.h>

#include <charconv>
#include <cmath>
#include <string_view>

namespace trireme::data_prep {
namespace {

void append_text(std::string_view text, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  std::size_t begin = 0;  // first character that is not yet copied
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, begin, i - begin);
    begin = i + 1;
    if (c == '"' || c == '\\') {
      out += '\\';
      out += text[i];
    } else {
      out += "\\u00";
      out += kHex[c >> 4U];
      out += kHex[c & 15U];
    }
  }
  out.append(text, begin);
  out += '"';
}

template <class Number>
void append_digits(Number value, std::string& out) {
  char digits[32];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

template <class ArrayType>
void append_integer(const arrow::Array& array, std::int64_t i, std::string& out) {
  append_digits(static_cast<const ArrayType&>(array).Value(i), out);
}

template <class ArrayType>
void append_float(const arrow::Array& array, std::int64_t i, std::string& out) {
  const auto value = static_cast<const ArrayType&>(array).Value(i);
  if (std::isfinite(value)) return append_digits(value, out);
  out += std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

template <class ArrayType>
void append_string(const arrow::Array& array, std::int64_t i, std::string& out) {
  append_text(static_cast<const ArrayType&>(array).GetView(i), out);
}

void append_value(const arrow::Array& array, std::int64_t i, std::string& out);

template <class ArrayType>
void append_list(const arrow::Array& array, std::int64_t i, std::string& out) {
  const auto& list = static_cast<const ArrayType&>(array);
  const arrow::Array& values = *list.values();
  const std::int64_t begin = list.value_offset(i);
  out += '[';
  for (std::int64_t k = 0; k < list.value_length(i); ++k) {
    if (k != 0) out += ',';
    append_value(values, begin + k, out);
  }
  out += ']';
}

void append_struct(const arrow::StructArray& array, std::int64_t i, std::string& out) {
  out += '{';
  for (int field = 0; field < array.num_fields(); ++field) {
    if (field != 0) out += ',';
    append_text(array.struct_type()->field(field)->name(), out);
    out += ':';
    append_value(*array.field(field), i, out);
  }
  out += '}';
}

void append_map(const arrow::MapArray& array, std::int64_t i, std::string& out) {
  const arrow::Array& keys = *array.keys();
  if (!arrow::is_string(keys.type_id())) return append_list<arrow::ListArray>(array, i, out);
  const std::int64_t begin = array.value_offset(i);
  out += '{';
  for (std::int64_t k = begin; k < begin + array.value_length(i); ++k) {
    if (k != begin) out += ',';
    append_value(keys, k, out);
    out += ':';
    append_value(*array.items(), k, out);
  }
  out += '}';
}

void append_dictionary(const arrow::DictionaryArray& array, std::int64_t i, std::string& out) {
  append_value(*array.dictionary(), array.GetValueIndex(i), out);
}

void append_other(const arrow::Array& array, std::int64_t i, std::string& out) {
  append_text(array.GetScalar(i).ValueOrDie()->ToString(), out);
}

void append_value(const arrow::Array& array, std::int64_t i, std::string& out) {
  using enum arrow::Type::type;
  if (array.IsNull(i)) {
    out += "null";
    return;
  }
  switch (array.type_id()) {
    case BOOL:
      out += static_cast<const arrow::BooleanArray&>(array).Value(i) ? "true" : "false";
      break;
    case INT8:
      return append_integer<arrow::Int8Array>(array, i, out);
    case INT16:
      return append_integer<arrow::Int16Array>(array, i, out);
    case INT32:
      return append_integer<arrow::Int32Array>(array, i, out);
    case INT64:
      return append_integer<arrow::Int64Array>(array, i, out);
    case UINT8:
      return append_integer<arrow::UInt8Array>(array, i, out);
    case UINT16:
      return append_integer<arrow::UInt16Array>(array, i, out);
    case UINT32:
      return append_integer<arrow::UInt32Array>(array, i, out);
    case UINT64:
      return append_integer<arrow::UInt64Array>(array, i, out);
    case FLOAT:
      return append_float<arrow::FloatArray>(array, i, out);
    case DOUBLE:
      return append_float<arrow::DoubleArray>(array, i, out);
    case STRING:
      return append_string<arrow::StringArray>(array, i, out);
    case LARGE_STRING:
      return append_string<arrow::LargeStringArray>(array, i, out);
    case STRING_VIEW:
      return append_string<arrow::StringViewArray>(array, i, out);
    case BINARY:
      return append_string<arrow::BinaryArray>(array, i, out);
    case LARGE_BINARY:
      return append_string<arrow::LargeBinaryArray>(array, i, out);
    case LIST:
      return append_list<arrow::ListArray>(array, i, out);
    case LARGE_LIST:
      return append_list<arrow::LargeListArray>(array, i, out);
    case FIXED_SIZE_LIST:
      return append_list<arrow::FixedSizeListArray>(array, i, out);
    case MAP:
      return append_map(static_cast<const arrow::MapArray&>(array), i, out);
    case STRUCT:
      return append_struct(static_cast<const arrow::StructArray&>(array), i, out);
    case DICTIONARY:
      return append_dictionary(static_cast<const arrow::DictionaryArray&>(array), i, out);
    case EXTENSION:
      return append_value(*static_cast<const arrow::ExtensionArray&>(array).storage(), i, out);
    default:
      return append_other(array, i, out);
  }
}

}  // namespace

void append_row(const arrow::RecordBatch& batch, std::int64_t row, std::string& out) {
  out += '{';
  for (int column = 0; column < batch.num_columns(); ++column) {
    if (column != 0) out += ',';
    append_text(batch.schema()->field(column)->name(), out);
    out += ':';
    append_value(*batch.column(column), row, out);
  }
  out += '}';
}

}  // namespace trireme::data_prep
