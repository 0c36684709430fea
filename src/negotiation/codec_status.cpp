#include "negotiation/codec_status.hpp"

#include <flatbuffers/flatbuffers.h>

#include <string>

#include "negotiation/codec_parts.hpp"
#include "wire_generated.h"

namespace kolo::negotiation {
namespace {

using codec::read;
using codec::read_enum;
using codec::read_milliseconds;
using codec::write;
using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

Offset<wire::PendingOperation> write(FlatBufferBuilder& out, const PendingOperation& operation) {
  return wire::CreatePendingOperation(out, write(out, operation.key),
                                      static_cast<std::uint8_t>(operation.type),
                                      operation.waited.count());
}

PendingOperation read(const wire::PendingOperation& in) {
  return {read(*in.key()), read_enum(in.type(), OperationType::remove_process_set, "operation"),
          read_milliseconds(in.waited_ms())};
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

RankStatus decode_status(std::span<const std::byte> status_bytes) {
  const codec::Aligned aligned(status_bytes);
  const std::span<const std::byte> bytes = aligned.bytes();
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier = codec::verifier_of(bytes);
  if (bytes.empty() || !verifier.VerifyBuffer<wire::RankStatus>(nullptr))
    throw ProtocolError("a rank's status is damaged");
  const auto& in = *flatbuffers::GetRoot<wire::RankStatus>(data);
  RankStatus status{.rank = in.rank(),
                    .process = in.process(),
                    .state = read_enum(in.state(), ProcessState::ended, "state"),
                    .heard = read_milliseconds(in.heard_ms()),
                    .idle = read_milliseconds(in.idle_ms()),
                    .submitted = in.submitted(),
                    .waits = in.waits(),
                    .blocked = in.blocked(),
                    .pending = in.pending(),
                    .batch = read(in.batch()),
                    .awaits = read(in.awaits()),
                    .awaited = read(in.awaited()),
                    .ended = in.ended(),
                    .ending = {read_enum(in.ending_kind(), FailureKind::shut_down, "failure"),
                               read(in.reason()), read(in.culprits())}};
  if (in.operations() != nullptr)
    for (const wire::PendingOperation* operation : *in.operations())
      status.operations.push_back(read(*operation));
  return status;
}

}  // namespace kolo::negotiation
