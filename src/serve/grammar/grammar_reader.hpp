#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "serve/grammar/byte_grammar.hpp"

namespace trireme {

/// Where a text stands in a grammar: the places at which it may go on. A state is a number; the
/// same places are the same number, so that what was once found out of a state is known.
///
/// The grammar as a pushdown automaton, made deterministic while it is used: a state is a set of
/// stacks of places. Stacks with the same place on top are one node, above a set of nodes, so that a
/// text which may be read in many ways (alternatives that begin alike, one in the other) has as many
/// nodes as the grammar has places at each depth, not as it has readings. No recursion over the text:
/// its depth costs memory only. Not shared between threads.
/// Source: Tomita, "Efficient parsing for natural language", 1985 (graph-structured stacks).
class GrammarReader {
 public:
  using State = std::uint32_t;
  static constexpr State kDead = 0;  // no text of the grammar begins so

  /// Reads texts of the rule `start`. `grammar` must have no left recursion.
  GrammarReader(std::shared_ptr<const ByteGrammar> grammar, std::uint32_t start);

  [[nodiscard]] State start() const noexcept { return start_; }

  /// After one more byte.
  [[nodiscard]] State step(State state, unsigned char byte);
  /// Whether the text may end here.
  [[nodiscard]] bool may_end(State state) const;

  [[nodiscard]] std::size_t num_states() const noexcept { return sets_.size(); }

  /// Forgets all states but `state`; returns its new number. start() is not valid any more.
  State forget_all_but(State state);

 private:
  class Closure;
  using Node = std::uint32_t;  // stacks with one place on top; 0: the empty one, the text's end
  using Nodes = std::vector<Node>;                  // a set, sorted
  using Following = std::array<std::int32_t, 256>;  // -1: not known yet

  struct NodeContent {
    std::uint32_t place = 0;  // of an element, the next one that is read
    State below = kDead;      // what it may lie on
    bool operator==(const NodeContent&) const = default;
  };

  struct NodeHash {
    std::size_t operator()(const NodeContent& content) const noexcept;
  };

  struct NodesHash {
    std::size_t operator()(const Nodes& nodes) const noexcept;
  };

  [[nodiscard]] Node node_of(NodeContent content);
  [[nodiscard]] State set_of(Nodes nodes);
  void clear();

  std::shared_ptr<const ByteGrammar> grammar_;
  std::vector<NodeContent> nodes_;  // what is below a node is made before it
  std::unordered_map<NodeContent, Node, NodeHash> node_ids_;
  std::vector<Nodes> sets_;  // states, and what nodes lie on
  std::unordered_map<Nodes, State, NodesHash> set_ids_;
  std::vector<std::unique_ptr<Following>> next_;  // of states that were stepped from
  State start_ = kDead;
};

}  // namespace trireme
