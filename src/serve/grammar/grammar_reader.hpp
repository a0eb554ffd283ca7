#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "serve/grammar/byte_grammar.hpp"

namespace trireme::serve {

/// Runs a grammar over a text, byte by byte. A state is the number of a set of positions at which
/// the text may continue. Equal sets have the same number, so each transition is computed only
/// once.
///
/// The class runs the pushdown automaton of the grammar and makes it deterministic on demand: a
/// state is a set of stacks of positions. Stacks with the same top position share one node, which
/// refers to the set of nodes below it. Therefore the number of nodes at each depth is at most the
/// number of positions in the grammar, even if the text has many parses. There is no recursion over
/// the text, so deep nesting costs only memory. Not thread-safe. Source: Tomita, "Efficient parsing
/// for natural language", 1985 (graph-structured stacks).
class GrammarReader {
 public:
  using State = std::uint32_t;
  static constexpr State kDead = 0;  // no text of the grammar begins with the bytes so far

  /// Reads texts of rule `start`. `grammar` must not have left recursion.
  GrammarReader(std::shared_ptr<const ByteGrammar> grammar, std::uint32_t start);

  [[nodiscard]] State start() const noexcept { return start_; }

  [[nodiscard]] State step(State state, unsigned char byte);
  [[nodiscard]] bool may_end(State state) const;

  [[nodiscard]] std::size_t num_states() const noexcept { return sets_.size(); }

  /// Removes all states except `state`. Returns the new number of `state`. Afterwards, start() is
  /// invalid.
  State forget_all_but(State state);

 private:
  class Closure;
  // all stacks with the same top position; 0 is the empty stack (end of text)
  using Node = std::uint32_t;
  using Nodes = std::vector<Node>;                  // a set, sorted
  using Following = std::array<std::int32_t, 256>;  // next state by byte; -1: not known yet

  struct NodeContent {
    std::uint32_t place = 0;  // index of the next element to read
    State below = kDead;      // set of nodes below
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
  std::vector<NodeContent> nodes_;  // a node comes after the nodes below it
  std::unordered_map<NodeContent, Node, NodeHash> node_ids_;
  std::vector<Nodes> sets_;  // states, and the sets below nodes
  std::unordered_map<Nodes, State, NodesHash> set_ids_;
  std::vector<std::unique_ptr<Following>> next_;  // transitions of the states that were used
  State start_ = kDead;
};

}  // namespace trireme::serve
