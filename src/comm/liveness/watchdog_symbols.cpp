#include "comm/liveness/watchdog_symbols.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "core/error.hpp"
#include "core/files/file.hpp"

namespace trireme::comm {
namespace {

/// Returns the `count` structures at `offset` of the file; null if they do not fit into the file.
template <class T>
const T* at(const std::string& file, std::uint64_t offset, std::uint64_t count = 1) {
  if (offset > file.size() || count > (file.size() - offset) / sizeof(T)) return nullptr;
  return reinterpret_cast<const T*>(file.data() + offset);
}

std::string file_name(const char* path) {
  const std::string text = path == nullptr ? "" : path;
  return text.substr(text.rfind('/') + 1);
}

/// Returns the load address of this program. Its symbols are relative to this address.
const void* own_base() {
  Dl_info info{};
  return ::dladdr(reinterpret_cast<const void*>(&own_base), &info) == 0 ? nullptr : info.dli_fbase;
}

std::string hex(std::uint64_t value) {
  std::ostringstream out;
  out << "0x" << std::hex << value;
  return out.str();
}

}  // namespace

OwnSymbols::OwnSymbols(const std::filesystem::path& program) {
  std::string file;
  try {
    file = read_file(program);
  } catch (const Error&) {
    return;
  }
  const auto* header = at<Elf64_Ehdr>(file, 0);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64)
    return;
  const auto* sections = at<Elf64_Shdr>(file, header->e_shoff, header->e_shnum);
  for (int i = 0; sections != nullptr && i < header->e_shnum; ++i) {
    const Elf64_Shdr& section = sections[i];
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= header->e_shnum) continue;
    const Elf64_Shdr& names = sections[section.sh_link];
    const std::uint64_t count = section.sh_size / sizeof(Elf64_Sym);
    const auto* symbols = at<Elf64_Sym>(file, section.sh_offset, count);
    if (symbols == nullptr || at<char>(file, names.sh_offset, names.sh_size) == nullptr) continue;
    for (std::uint64_t s = 0; s < count; ++s) {
      const Elf64_Sym& symbol = symbols[s];
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_name >= names.sh_size) continue;
      const char* name = file.data() + names.sh_offset + symbol.st_name;
      functions_.push_back({symbol.st_value, symbol.st_size,
                            std::string(name, ::strnlen(name, names.sh_size - symbol.st_name))});
    }
  }
  std::sort(functions_.begin(), functions_.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
}

std::string OwnSymbols::name_at(std::uint64_t address) const {
  auto after =
      std::upper_bound(functions_.begin(), functions_.end(), address,
                       [](std::uint64_t value, const Function& one) { return value < one.begin; });
  if (after == functions_.begin()) return "";
  const Function& function = *--after;
  return address < function.begin + function.size ? function.name : "";
}

std::string demangle(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  const std::string text = status == 0 && plain ? plain.get() : name;
  constexpr std::size_t kMost = 200;
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

std::string describe_frame(void* address, const OwnSymbols& own) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fbase == nullptr) return "?";
  // A return address may be the first byte after the caller, so look up the byte before it.
  const std::uint64_t offset =
      reinterpret_cast<std::uint64_t>(address) - reinterpret_cast<std::uint64_t>(info.dli_fbase);
  const bool nameless = info.dli_sname == nullptr || *info.dli_sname == '\0';
  const std::string own_name =
      nameless && info.dli_fbase == own_base() ? own.name_at(offset - 1) : "";
  const std::string file = file_name(info.dli_fname);
  if (!own_name.empty()) return formatted("{} ({}+{})", demangle(own_name), file, hex(offset));
  if (info.dli_sname != nullptr) return formatted("{} ({})", demangle(info.dli_sname), file);
  return formatted("{}+{}", file, hex(offset));
}

}  // namespace trireme::comm
