#include "serve/grammar/grammar_reader.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace trireme::serve {

using ElementKind = GrammarElement::Kind;

/// Computes the closure of a set of positions: all positions that can be reached from them without
/// reading a byte.
class GrammarReader::Closure {
 public:
  explicit Closure(GrammarReader& reader) : reader_(reader), grammar_(*reader.grammar_) {}

  /// Adds `place` on top of each node of the set `below`.
  void add(std::uint32_t place, State below) {
    for (const Node node : reader_.sets_[below]) visit(place, {node, false});
    while (!open_.empty()) {
      const auto [at, under] = open_.back();
      open_.pop_back();
      go_on(at, under);
    }
  }

  State take() {
    Nodes nodes;
    if (may_end_) nodes.push_back(0);
    for (const auto& [place, unders] : found_)
      nodes.push_back(reader_.node_of({place, set_of(unders)}));
    return reader_.set_of(std::move(nodes));
  }

 private:
  /// The part of a stack below a position. It is either a node, or a return position of this
  /// closure. A return position does not become a node before the end, because the set below it may
  /// still grow.
  struct Under {
    std::uint32_t index;
    bool is_back;
    auto operator<=>(const Under&) const = default;
  };

  struct Back {
    std::set<Under> below;
    // the rule matched the empty text, so nodes that are added to `below` later also continue
    bool ended = false;
    std::optional<Node> node;
  };

  void visit(std::uint32_t at, Under under) {
    if (seen_.emplace(at, under).second) open_.emplace_back(at, under);
  }

  void go_on(std::uint32_t at, Under under) {
    const GrammarElement& element = grammar_.element(at);
    if (element.kind == ElementKind::bytes) {
      found_[at].insert(under);
    } else if (element.kind == ElementKind::end) {
      pop_rule(under);
    } else {
      // If the reference is the last element of its alternative, no return position is needed.
      const bool is_last = grammar_.element(at + 1).kind == ElementKind::end;
      if (!is_last) {
        Back& back = backs_[at + 1];
        if (back.below.insert(under).second && back.ended) visit(at + 1, under);
        under = {at + 1, true};
      }
      for (const std::uint32_t begin : grammar_.alternatives(element.index)) visit(begin, under);
    }
  }

  void pop_rule(Under under) {
    if (under.is_back) {
      Back& back = backs_[under.index];
      back.ended = true;
      for (const Under each : back.below) visit(under.index, each);
    } else if (under.index == 0) {
      may_end_ = true;
    } else {
      const NodeContent content = reader_.nodes_[under.index];
      for (const Node node : reader_.sets_[content.below]) visit(content.place, {node, false});
    }
  }

  /// There is no left recursion, so a return position is never below itself.
  Node node_of(Under under) {
    if (!under.is_back) return under.index;
    Back& back = backs_[under.index];
    if (!back.node) back.node = reader_.node_of({under.index, set_of(back.below)});
    return *back.node;
  }

  State set_of(const std::set<Under>& unders) {
    Nodes nodes;
    for (const Under under : unders) nodes.push_back(node_of(under));
    return reader_.set_of(std::move(nodes));
  }

  GrammarReader& reader_;
  const ByteGrammar& grammar_;
  std::set<std::pair<std::uint32_t, Under>> seen_;
  std::vector<std::pair<std::uint32_t, Under>> open_;
  std::map<std::uint32_t, std::set<Under>> found_;  // positions before a byte
  std::map<std::uint32_t, Back> backs_;             // by position
  bool may_end_ = false;
};

std::size_t GrammarReader::NodeHash::operator()(const NodeContent& content) const noexcept {
  const std::uint64_t both = std::uint64_t{content.place} << 32 | content.below;
  return static_cast<std::size_t>((both ^ both >> 29) * 0x9E3779B97F4A7C15U);
}

std::size_t GrammarReader::NodesHash::operator()(const Nodes& nodes) const noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const Node node : nodes) hash = (hash ^ node) * 0x100000001b3;
  return static_cast<std::size_t>(hash ^ hash >> 32);
}

GrammarReader::GrammarReader(std::shared_ptr<const ByteGrammar> grammar, std::uint32_t start)
    : grammar_(std::move(grammar)) {
  clear();
  Closure closure(*this);
  for (const std::uint32_t begin : grammar_->alternatives(start)) closure.add(begin, set_of({0}));
  start_ = closure.take();
}

void GrammarReader::clear() {
  nodes_.assign(1, {});
  node_ids_.clear();
  sets_.clear();
  set_ids_.clear();
  next_.clear();
  static_cast<void>(set_of({}));  // kDead
}

GrammarReader::Node GrammarReader::node_of(NodeContent content) {
  const auto [found, is_new] = node_ids_.emplace(content, static_cast<Node>(nodes_.size()));
  if (is_new) nodes_.push_back(content);
  return found->second;
}

GrammarReader::State GrammarReader::set_of(Nodes nodes) {
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  const auto [found, is_new] = set_ids_.emplace(nodes, static_cast<State>(sets_.size()));
  if (is_new) {
    sets_.push_back(std::move(nodes));
    next_.emplace_back();
  }
  return found->second;
}

GrammarReader::State GrammarReader::step(State state, unsigned char byte) {
  if (!next_[state]) {
    next_[state] = std::make_unique<Following>();
    next_[state]->fill(-1);
  }
  if (const std::int32_t known = (*next_[state])[byte]; known >= 0)
    return static_cast<State>(known);
  Closure closure(*this);
  for (const Node node : Nodes(sets_[state])) {
    if (node == 0) continue;
    const NodeContent content = nodes_[node];
    if (grammar_->set(grammar_->element(content.place).index).has(byte))
      closure.add(content.place + 1, content.below);
  }
  const State next = closure.take();
  (*next_[state])[byte] = static_cast<std::int32_t>(next);
  return next;
}

bool GrammarReader::may_end(State state) const {
  return !sets_[state].empty() && sets_[state].front() == 0;
}

GrammarReader::State GrammarReader::forget_all_but(State state) {
  const Nodes tops = sets_[state];
  std::map<Node, NodeContent> kept;  // std::map keeps a node after the nodes below it
  std::map<Node, Nodes> below;
  Nodes open = tops;
  while (!open.empty()) {
    const Node node = open.back();
    open.pop_back();
    if (node == 0 || !kept.emplace(node, nodes_[node]).second) continue;
    below[node] = sets_[nodes_[node].below];
    open.insert(open.end(), below[node].begin(), below[node].end());
  }
  clear();
  std::map<Node, Node> renamed{{0, 0}};
  const auto rename = [&](Nodes nodes) {
    for (Node& node : nodes) node = renamed.at(node);
    return set_of(std::move(nodes));
  };
  for (const auto& [node, content] : kept)
    renamed[node] = node_of({content.place, rename(below[node])});
  return rename(tops);
}

}  // namespace trireme::serve
