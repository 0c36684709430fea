// SPDX-License-Identifier: Apache-2.0
// The trees along which broadcasts travel.
#pragma once

#include <array>
#include <vector>

namespace kolo::internal::backend::mpi {

/// The neighbors of one participant in a tree. Participants have the numbers 0 to size - 1.
struct Tree {
  int parent = -1;              // -1 for the root
  std::vector<int> children{};  // the child with the largest subtree first
};

/// Few messages in sequence, but the root sends everything to log2(size) others.
[[nodiscard]] Tree binomial_tree(int own, int root, int size);

/// Two trees for half of the data each. The root has one child in each of them. Everybody else has
/// at most two children in one tree and none in the other, so nobody sends much more than the data
/// once, and all send at the same time. The trees have about log2(size) levels.
///
/// Sanders, Speck and Traff: "Two-tree algorithms for full bandwidth broadcast, reduction and
/// scan", 2009. NCCL has them as double binary trees.
[[nodiscard]] std::array<Tree, 2> two_trees(int own, int root, int size);

/// The most participants that forward a message in one of the two trees one after the other.
[[nodiscard]] int forwards_in_two_trees(int size);

}  // namespace kolo::internal::backend::mpi
