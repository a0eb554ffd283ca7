#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

/// Makes files in the format of torch.save, byte by byte.
namespace trireme::test {

template <class T>
void add_number(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline std::uint32_t zip_checksum(std::string_view bytes) {
  std::uint32_t sum = 0xffffffffU;
  for (const char byte : bytes) {
    sum ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = (sum & 1U) != 0 ? 0xedb88320U ^ (sum >> 1) : sum >> 1;
  }
  return ~sum;
}

struct ZipRecord {
  std::string name;
  std::string content;
};

/// Records without compression; `method` 8 claims that they are compressed.
inline std::string zip_of(const std::vector<ZipRecord>& records, std::uint16_t method = 0) {
  std::string file;
  std::string directory;
  for (const ZipRecord& record : records) {
    const auto place = static_cast<std::uint32_t>(file.size());
    std::string fields;
    add_number<std::uint16_t>(fields, 0);  // version, flags, method, time, date
    add_number<std::uint16_t>(fields, 0);
    add_number<std::uint16_t>(fields, method);
    add_number<std::uint32_t>(fields, 0);
    add_number(fields, zip_checksum(record.content));
    add_number(fields, static_cast<std::uint32_t>(record.content.size()));
    add_number(fields, static_cast<std::uint32_t>(record.content.size()));
    add_number(fields, static_cast<std::uint16_t>(record.name.size()));
    add_number<std::uint16_t>(fields, 0);
    file += "PK\x03\x04" + fields + record.name + record.content;
    directory.append("PK\x01\x02").append(2, '\0').append(fields).append(10, '\0');
    add_number(directory, place);
    directory += record.name;
  }
  const auto begin = static_cast<std::uint32_t>(file.size());
  file += directory + std::string("PK\x05\x06\0\0\0\0", 8);
  add_number(file, static_cast<std::uint16_t>(records.size()));
  add_number(file, static_cast<std::uint16_t>(records.size()));
  add_number(file, static_cast<std::uint32_t>(directory.size()));
  add_number(file, begin);
  add_number<std::uint16_t>(file, 0);
  return file;
}

/// Instructions of a pickle, protocol 2.
class Pickle {
 public:
  std::string code{"\x80\x02"};

  Pickle& raw(std::string_view part) {
    code += part;
    return *this;
  }

  Pickle& text(std::string_view value) {
    code += 'X';
    add_number(code, static_cast<std::uint32_t>(value.size()));
    code += value;
    return *this;
  }

  Pickle& number(std::int32_t value) {
    code += 'J';
    add_number(code, value);
    return *this;
  }

  Pickle& global(std::string_view module, std::string_view name) {
    code.append("c").append(module).append("\n").append(name).append("\n");
    return *this;
  }

  Pickle& tuple(const std::vector<std::int32_t>& values) {
    code += '(';
    for (const std::int32_t value : values) number(value);
    code += 't';
    return *this;
  }

  /// torch._utils._rebuild_tensor_v2((storage), offset, shape, strides, False, OrderedDict())
  Pickle& tensor(std::string_view type, std::string_view key, std::int32_t count,
                 std::int32_t offset, const std::vector<std::int32_t>& shape,
                 const std::vector<std::int32_t>& strides) {
    global("torch._utils", "_rebuild_tensor_v2").raw("((").text("storage").global("torch", type);
    text(key).text("cpu").number(count).raw("tQ").number(offset).tuple(shape).tuple(strides);
    return raw("\x89").global("collections", "OrderedDict").raw(")RtR");
  }
};

}  // namespace trireme::test
