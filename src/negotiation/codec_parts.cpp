#include "negotiation/codec_parts.hpp"

#include <limits>
#include <vector>

namespace kolo::negotiation::codec {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

Offset<Ranges> write(FlatBufferBuilder& out, const RankSet& ranks) {
  std::vector<wire::RankRange> ranges;
  ranges.reserve(ranks.ranges().size());
  for (const RankSet::Range& range : ranks.ranges()) ranges.emplace_back(range.first, range.last);
  return out.CreateVectorOfStructs(ranges);
}

Offset<wire::Key> write(FlatBufferBuilder& out, const Key& key) {
  const auto name = key.named() ? out.CreateString(key.name) : 0;
  return wire::CreateKey(out, name, key.number, key.set);
}

RankSet read(const Ranges* ranges) {
  RankSet ranks;
  if (ranges == nullptr) return ranks;
  for (const wire::RankRange* range : *ranges) {
    // A world's size is an int too.
    if (range->first() < 0 || range->last() < range->first() ||
        range->last() == std::numeric_limits<std::int32_t>::max())
      throw ProtocolError("a range of ranks that is none");
    ranks.insert(RankSet::range(range->first(), range->last()));
  }
  return ranks;
}

std::string read(const flatbuffers::String* text) { return text == nullptr ? "" : text->str(); }

Key read(const wire::Key& key) { return {read(key.name()), key.number(), read_set(key.set())}; }

SetId read_set(std::int64_t set) {
  if (set < 0) throw ProtocolError("a process set without a number");
  return set;
}

int read_rank(std::int32_t rank) {
  if (rank < 0) throw ProtocolError("a rank without a number");
  return rank;
}

std::chrono::milliseconds read_milliseconds(std::int64_t count) {
  constexpr std::int64_t most = 1'000'000'000'000;  // 30 years, so that sums of some fit
  if (count < 0 || count > most) throw ProtocolError("a time that nobody waits");
  return std::chrono::milliseconds(count);
}

void refuse_enum(const char* what, int value) {
  throw ProtocolError(std::string("unknown ") + what + ' ' + std::to_string(value));
}

Aligned::Aligned(std::span<const std::byte> bytes) : bytes_(bytes) {
  constexpr std::uintptr_t widest = sizeof(std::uint64_t);
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % widest == 0) return;
  copy_.assign(bytes.begin(), bytes.end());
  bytes_ = copy_;
}

flatbuffers::Verifier verifier_of(std::span<const std::byte> bytes) {
  constexpr flatbuffers::uoffset_t most_depth = 64;
  constexpr std::size_t least_table = 4;
  return flatbuffers::Verifier(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(),
                               most_depth,
                               static_cast<flatbuffers::uoffset_t>(bytes.size() / least_table));
}

}  // namespace kolo::negotiation::codec
