#include <algorithm>
#include <fstream>
#include <utility>

#include "support/disk_recorder.hpp"

namespace trireme::test {
namespace {

namespace fs = std::filesystem;

struct LiveNode {
  bool is_folder = false;
  std::string now;                     // content after all calls
  std::string synced;                  // content at the last fsync
  std::string some;                    // content after a random subset of the writes
  std::map<std::string, int> entries;  // names after all calls
  std::map<std::string, int> synced_entries;
  std::map<std::string, int> early_entries;  // names after the calls up to a random one
};

std::pair<std::string, std::string> split(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

void put(std::string& content, std::uint64_t offset, const std::string& bytes) {
  content.resize(std::max<std::size_t>(content.size(), offset + bytes.size()));
  content.replace(offset, bytes.size(), bytes);
}

/// Returns the parent directory of `path`.
LiveNode& parent(std::map<int, LiveNode>& nodes, const std::string& path) {
  int node = 0;
  std::string rest = split(path).first;
  while (!rest.empty()) {
    const std::size_t slash = rest.find('/');
    node = nodes.at(node).entries.at(rest.substr(0, slash));
    rest = slash == std::string::npos ? "" : rest.substr(slash + 1);
  }
  return nodes.at(node);
}

void apply(std::map<int, LiveNode>& nodes, const DiskCall& call, bool through) {
  using Kind = DiskCall::Kind;
  const std::string name = split(call.path).second;
  switch (call.kind) {
    case Kind::create:
    case Kind::make_directory:
      nodes[call.node].is_folder = call.kind == Kind::make_directory;
      parent(nodes, call.path).entries[name] = call.node;
      break;
    case Kind::write:
      put(nodes.at(call.node).now, call.offset, call.bytes);
      if (through) put(nodes.at(call.node).some, call.offset, call.bytes);
      break;
    case Kind::resize:
      nodes.at(call.node).now.resize(call.offset);
      nodes.at(call.node).some.resize(call.offset);
      break;
    case Kind::sync: {
      LiveNode& node = nodes.at(call.node);
      node.synced = node.some = node.now;
      node.synced_entries = node.early_entries = node.entries;
      break;
    }
    case Kind::rename: {
      LiveNode& from = parent(nodes, call.path);
      LiveNode& to = parent(nodes, call.target);
      const int node = from.entries.at(name);
      from.entries.erase(name);
      to.entries[split(call.target).second] = node;
      break;
    }
    case Kind::remove:
      parent(nodes, call.path).entries.erase(name);
      break;
  }
}

}  // namespace

DiskImage::DiskImage(const std::vector<DiskCall>& calls, std::size_t count, Lost lost,
                     unsigned seed) {
  std::mt19937 random(seed);
  std::map<int, LiveNode> live;
  live[0].is_folder = true;
  const std::size_t early = count == 0 ? 0 : random() % count;
  for (std::size_t i = 0; i < count; ++i) {
    apply(live, calls[i], random() % 2 == 0);
    if (i != early) continue;
    for (auto& [number, node] : live) node.early_entries = node.entries;
  }
  for (const auto& [number, node] : live) {
    Node& image = nodes_[number];
    image.is_folder = node.is_folder;
    const bool names_kept = lost == Lost::nothing || lost == Lost::data;
    image.entries = names_kept           ? node.entries
                    : lost == Lost::some ? node.early_entries
                                         : node.synced_entries;
    const bool data_kept = lost == Lost::nothing || lost == Lost::names;
    image.content = data_kept ? node.now : lost == Lost::some ? node.some : node.synced;
    if (lost == Lost::data) image.content.resize(node.now.size());
  }
}

void DiskImage::write(const fs::path& folder) const {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) fs::remove_all(entry);
  const auto put_node = [&](const auto& self, int number, const fs::path& path) -> void {
    const Node& node = nodes_.at(number);
    if (!node.is_folder) {
      std::ofstream(path, std::ios::binary) << node.content;
      return;
    }
    fs::create_directory(path);
    for (const auto& [name, child] : node.entries) self(self, child, path / name);
  };
  put_node(put_node, 0, folder);
}

}  // namespace trireme::test
