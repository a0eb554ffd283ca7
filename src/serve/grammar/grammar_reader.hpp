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
/// stacks of places, and stacks share their lower parts. No recursion, so the depth of a text costs
/// memory only. Not shared between threads.
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

  [[nodiscard]] std::size_t num_states() const noexcept { return states_.size(); }

  /// Forgets all states but `state`; returns its new number. start() is not valid any more.
  State forget_all_but(State state);

 private:
  using Node = std::uint32_t;  // a stack; 0: the empty one, where the text may end

  struct NodeContent {
    std::uint32_t place = 0;  // of an element, the next one that is read
    Node below = 0;
    bool operator==(const NodeContent&) const = default;
  };

  struct NodeHash {
    std::size_t operator()(const NodeContent& content) const noexcept;
  };

  using Places = std::vector<Node>;  // sorted

  struct PlacesHash {
    std::size_t operator()(const Places& places) const noexcept;
  };

  [[nodiscard]] Node node_of(NodeContent content);
  [[nodiscard]] State state_of(Places places);
  void clear();
  /// Adds every stack that reads a byte next, from `place` on top of `below`.
  void expand(std::uint32_t place, Node below, Places& places);

  std::shared_ptr<const ByteGrammar> grammar_;
  std::vector<NodeContent> nodes_;
  std::unordered_map<NodeContent, Node, NodeHash> node_ids_;
  std::vector<Places> states_;
  std::vector<std::array<std::int32_t, 256>> next_;  // -1: not known yet
  std::unordered_map<Places, State, PlacesHash> state_ids_;
  State start_ = kDead;
};

}  // namespace trireme
