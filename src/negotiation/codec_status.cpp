#include "negotiation/codec_status.hpp"

#include <flatbuffers/flatbuffers.h>

#include <string>

#include "negotiation/codec.hpp"
#include "wire_generated.h"

namespace kolo::negotiation {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using std::chrono::milliseconds;

using Ranges = flatbuffers::Vector<const wire::RankRange*>;

Offset<Ranges> write(FlatBufferBuilder& out, const RankSet& ranks) {
  std::vector<wire::RankRange> ranges;
  for (const RankSet::Range& range : ranks.ranges()) ranges.emplace_back(range.first, range.last);
  return out.CreateVectorOfStructs(ranges);
}

Offset<wire::PendingOperation> write(FlatBufferBuilder& out, const PendingOperation& operation) {
  const auto name = out.CreateString(operation.key.name);
  const auto key = wire::CreateKey(out, name, operation.key.number, operation.key.set);
  return wire::CreatePendingOperation(out, key, static_cast<std::uint8_t>(operation.type),
                                      operation.waited.count());
}

RankSet read(const Ranges* in) {
  RankSet ranks;
  if (in == nullptr) return ranks;
  for (const wire::RankRange* range : *in) {
    if (range->first() < 0 || range->last() < range->first())
      throw ProtocolError("a status with a range of ranks that is none");
    ranks.insert(RankSet::range(range->first(), range->last()));
  }
  return ranks;
}

std::string read(const flatbuffers::String* in) { return in == nullptr ? "" : in->str(); }

template <typename Enum>
Enum read_enum(std::uint8_t value, Enum last) {
  if (value > static_cast<std::uint8_t>(last)) throw ProtocolError("a status of an unknown kind");
  return static_cast<Enum>(value);
}

PendingOperation read(const wire::PendingOperation& in) {
  return {{read(in.key()->name()), in.key()->number(), in.key()->set()},
          read_enum(in.type(), OperationType::remove_process_set),
          milliseconds(in.waited_ms())};
}

}  // namespace

std::vector<std::byte> encode_status(const RankStatus& status) {
  FlatBufferBuilder out;
  std::vector<Offset<wire::PendingOperation>> operations;
  for (const PendingOperation& operation : status.operations)
    operations.push_back(write(out, operation));
  const auto listed = out.CreateVector(operations);
  const auto batch = out.CreateString(status.batch);
  const auto awaits = out.CreateString(status.awaits);
  const auto awaited = write(out, status.awaited);
  const auto reason = out.CreateString(status.ending.reason);
  const auto culprits = write(out, status.ending.culprits);
  out.Finish(wire::CreateRankStatus(
      out, status.rank, status.process, static_cast<std::uint8_t>(status.state),
      status.heard.count(), status.idle.count(), status.submitted, status.waits, status.blocked,
      status.pending, listed, batch, awaits, awaited, status.ended,
      static_cast<std::uint8_t>(status.ending.kind), reason, culprits));
  const auto* data = reinterpret_cast<const std::byte*>(out.GetBufferPointer());
  return {data, data + out.GetSize()};
}

RankStatus decode_status(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size());
  if (bytes.empty() || !verifier.VerifyBuffer<wire::RankStatus>(nullptr))
    throw ProtocolError("a rank's status is damaged");
  const auto& in = *flatbuffers::GetRoot<wire::RankStatus>(data);
  RankStatus status{.rank = in.rank(),
                    .process = in.process(),
                    .state = read_enum(in.state(), ProcessState::ended),
                    .heard = milliseconds(in.heard_ms()),
                    .idle = milliseconds(in.idle_ms()),
                    .submitted = in.submitted(),
                    .waits = in.waits(),
                    .blocked = in.blocked(),
                    .pending = in.pending(),
                    .batch = read(in.batch()),
                    .awaits = read(in.awaits()),
                    .awaited = read(in.awaited()),
                    .ended = in.ended(),
                    .ending = {read_enum(in.ending_kind(), FailureKind::shut_down),
                               read(in.reason()), read(in.culprits())}};
  if (in.operations() != nullptr)
    for (const wire::PendingOperation* operation : *in.operations())
      status.operations.push_back(read(*operation));
  return status;
}

}  // namespace kolo::negotiation
