#include "serve/grammar/grammar_reader.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace trireme {

using ElementKind = GrammarElement::Kind;

std::size_t GrammarReader::NodeHash::operator()(const NodeContent& content) const noexcept {
  const std::uint64_t both = std::uint64_t{content.place} << 32 | content.below;
  return static_cast<std::size_t>((both ^ both >> 29) * 0x9E3779B97F4A7C15U);
}

std::size_t GrammarReader::PlacesHash::operator()(const Places& places) const noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const Node node : places) hash = (hash ^ node) * 0x100000001b3;
  return static_cast<std::size_t>(hash ^ hash >> 32);
}

GrammarReader::GrammarReader(std::shared_ptr<const ByteGrammar> grammar, std::uint32_t start)
    : grammar_(std::move(grammar)) {
  clear();
  Places places;
  for (const std::uint32_t begin : grammar_->alternatives(start)) expand(begin, 0, places);
  start_ = state_of(std::move(places));
}

void GrammarReader::clear() {
  nodes_.assign(1, {});
  node_ids_.clear();
  states_.assign(1, {});  // kDead: no place
  state_ids_.clear();
  state_ids_.emplace(Places(), kDead);
  next_.assign(1, {});
  next_[0].fill(kDead);
}

GrammarReader::Node GrammarReader::node_of(NodeContent content) {
  const auto [found, is_new] = node_ids_.emplace(content, static_cast<Node>(nodes_.size()));
  if (is_new) nodes_.push_back(content);
  return found->second;
}

GrammarReader::State GrammarReader::state_of(Places places) {
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  const auto [found, is_new] = state_ids_.emplace(places, static_cast<State>(states_.size()));
  if (is_new) {
    states_.push_back(std::move(places));
    next_.emplace_back().fill(-1);
  }
  return found->second;
}

void GrammarReader::expand(std::uint32_t place, Node below, Places& places) {
  std::set<std::pair<std::uint32_t, Node>> seen;
  std::vector<std::pair<std::uint32_t, Node>> open{{place, below}};
  while (!open.empty()) {
    const auto [at, under] = open.back();
    open.pop_back();
    if (!seen.emplace(at, under).second) continue;
    const GrammarElement& element = grammar_->element(at);
    if (element.kind == ElementKind::bytes) {
      places.push_back(node_of({at, under}));
    } else if (element.kind == ElementKind::end) {
      if (under == 0) {
        places.push_back(0);
      } else {
        open.emplace_back(nodes_[under].place, nodes_[under].below);
      }
    } else {
      // A rule that ends its alternative needs no place to come back to.
      const bool is_last = grammar_->element(at + 1).kind == ElementKind::end;
      const Node back = is_last ? under : node_of({at + 1, under});
      for (const std::uint32_t begin : grammar_->alternatives(element.index))
        open.emplace_back(begin, back);
    }
  }
}

GrammarReader::State GrammarReader::step(State state, unsigned char byte) {
  if (next_[state][byte] >= 0) return static_cast<State>(next_[state][byte]);
  Places places;
  for (const Node node : Places(states_[state])) {
    if (node == 0) continue;
    const NodeContent content = nodes_[node];
    if (grammar_->set(grammar_->element(content.place).index).has(byte))
      expand(content.place + 1, content.below, places);
  }
  const State next = state_of(std::move(places));
  next_[state][byte] = static_cast<std::int32_t>(next);
  return next;
}

bool GrammarReader::may_end(State state) const {
  return !states_[state].empty() && states_[state].front() == 0;
}

GrammarReader::State GrammarReader::forget_all_but(State state) {
  std::vector<std::vector<std::uint32_t>> stacks;  // places from the top down
  for (const Node top : states_[state]) {
    std::vector<std::uint32_t>& stack = stacks.emplace_back();
    for (Node node = top; node != 0; node = nodes_[node].below) stack.push_back(nodes_[node].place);
  }
  clear();
  Places places;
  for (const std::vector<std::uint32_t>& stack : stacks) {
    Node node = 0;
    for (auto place = stack.rbegin(); place != stack.rend(); ++place)
      node = node_of({*place, node});
    places.push_back(node);
  }
  return state_of(std::move(places));
}

}  // namespace trireme
