#include "backend/cuda/card.hpp"

#include <fmt/format.h>

#include <cstring>

#include "base/format.hpp"

namespace kolo::backend::cuda {
namespace {

std::string nccl_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace

std::vector<std::byte> to_bytes(const Card& card) {
  std::vector<std::byte> bytes(sizeof(Card));
  std::memcpy(bytes.data(), &card, sizeof(Card));
  return bytes;
}

Card to_card(std::span<const std::byte> bytes) {
  Card card;
  std::memcpy(&card, bytes.data(), sizeof(Card));
  return card;
}

Path choose_path(std::span<const int> ranks, std::span<const Card> cards) {
  for (std::size_t i = 0; i < cards.size(); ++i)
    if (cards[i].why_no_nccl.front() != '\0')
      return {false, fmt::format("rank {}: {}", ranks[i], cards[i].why_no_nccl.data())};
  for (std::size_t i = 1; i < cards.size(); ++i)
    if (cards[i].nccl_version != cards.front().nccl_version)
      return {false, fmt::format("rank {} has NCCL {}, rank {} has NCCL {}", ranks.front(),
                                 nccl_text(cards.front().nccl_version), ranks[i],
                                 nccl_text(cards[i].nccl_version))};
  for (std::size_t i = 0; i < cards.size(); ++i)
    for (std::size_t j = i + 1; j < cards.size(); ++j)
      if (cards[i].uuid == cards[j].uuid)
        return {false,
                fmt::format("ranks {} and {} use the same GPU (cuda:{} and cuda:{}, PCI {}): "
                            "give each rank a GPU of its own",
                            ranks[i], ranks[j], cards[i].device, cards[j].device,
                            cards[i].pci_bus_id.data())};
  return {true, ""};
}

}  // namespace kolo::backend::cuda
