// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <array>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>

#include "random.hpp"

namespace gpt {
namespace {

constexpr std::array<std::string_view, 8> people = {"Anna", "Ben",  "Clara", "David",
                                                    "Emma", "Finn", "Greta", "Hugo"};
constexpr std::array<std::string_view, 6> colors = {"red",   "green", "blue",
                                                    "black", "white", "brown"};
constexpr std::array<std::string_view, 8> things = {"ball", "book", "cup",  "coat",
                                                    "lamp", "kite", "boat", "drum"};

template <std::size_t size>
std::string draw(const std::array<std::string_view, size>& words, Random& random) {
  return std::string(words[random.below(size)]);
}

std::string story(Random& random) {
  const std::string giver = draw(people, random);
  std::string taker = draw(people, random);
  while (taker == giver) taker = draw(people, random);
  const std::string thing = draw(colors, random) + " " + draw(things, random);
  return giver + " has a " + thing + ". " + giver + " gives the " + thing + " to " + taker +
         ". Now " + taker + " has the " + thing + ".\n";
}

}  // namespace

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw std::runtime_error("cannot read the text '" + path.string() + "'");
  return text;
}

std::string generate_text(std::size_t size, std::uint64_t seed) {
  Random random(seed);
  std::string text;
  while (text.size() < size) text += story(random);
  return text;
}

Batch Windows::batch(std::span<const std::int64_t> windows) const {
  Batch batch;
  batch.sequences = windows.size();
  for (const std::int64_t window : windows) {
    const auto tokens = text_.subspan(static_cast<std::size_t>(window) * context_, context_ + 1);
    for (std::size_t i = 0; i < context_; ++i) {
      batch.inputs.push_back(static_cast<std::uint8_t>(tokens[i]));
      batch.targets.push_back(static_cast<std::uint8_t>(tokens[i + 1]));
    }
  }
  return batch;
}

}  // namespace gpt
