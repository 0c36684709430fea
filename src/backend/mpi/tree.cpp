// SPDX-License-Identifier: Apache-2.0
#include "backend/mpi/tree.hpp"

#include <algorithm>
#include <bit>

namespace kolo::internal::backend::mpi {
namespace {

int lowest_bit(int place) { return place & -place; }

/// A tree in the order of the places: the left subtree of a place has lower places, the right one
/// higher places. Place 0 is the root. Odd places are leaves. Others are as many levels above the
/// leaves as their number has zeros at the end.
Tree tree_in_order(int place, int size) {
  Tree tree;
  if (place == 0) {
    if (size > 1)
      tree.children = {static_cast<int>(std::bit_floor(static_cast<unsigned>(size - 1)))};
    return tree;
  }
  const int bit = lowest_bit(place);
  tree.parent = (place ^ bit) | (2 * bit);
  if (tree.parent >= size) tree.parent = place ^ bit;
  if (bit > 1) tree.children = {place - bit / 2};
  // The right subtree may lack its upper levels.
  int step = bit / 2;
  while (step > 0 && place + step >= size) step /= 2;
  if (step > 0) tree.children.push_back(place + step);
  return tree;
}

}  // namespace

Tree binomial_tree(int own, int root, int size) {
  Tree tree;
  // Counting places from the root, the parent of a rank is its place without the lowest bit.
  const int place = (own - root + size) % size;
  int bit = 1;
  while (bit < size && (place & bit) == 0) bit *= 2;
  if (place != 0) tree.parent = (place - bit + root) % size;
  // The child with the largest subtree is served first, since its data has the longest way.
  for (int step = bit / 2; step > 0; step /= 2)
    if (place + step < size) tree.children.push_back((place + step + root) % size);
  return tree;
}

std::array<Tree, 2> two_trees(int own, int root, int size) {
  std::array<Tree, 2> trees;
  const int place = (own - root + size) % size;
  // In the second tree, each participant but the root takes the place of its successor. So leaves
  // of one tree have children in the other only.
  const int others = size - 1;
  for (const int shift : {0, 1}) {
    Tree& tree = trees[static_cast<std::size_t>(shift)];
    tree = tree_in_order(place == 0 ? 0 : (place - 1 + shift) % others + 1, size);
    const auto participant = [&](int there) {
      const int at = there <= 0 ? there : (there - 1 - shift + others) % others + 1;
      return at < 0 ? -1 : (at + root) % size;
    };
    tree.parent = participant(tree.parent);
    std::ranges::transform(tree.children, tree.children.begin(), participant);
  }
  return trees;
}

int forwards_in_two_trees(int size) {
  return size < 3 ? 0 : static_cast<int>(std::bit_width(static_cast<unsigned>(size - 1))) - 1;
}

}  // namespace kolo::internal::backend::mpi
