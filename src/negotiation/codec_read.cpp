// The half of the codec that reads bytes. FlatBuffers' verifier has checked offsets and required
// fields, not values.
#include <flatbuffers/flatbuffers.h>

#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "negotiation/codec.hpp"
#include "negotiation/codec_parts.hpp"
#include "negotiation/codec_status.hpp"
#include "wire_generated.h"

namespace kolo::negotiation {
namespace {

using codec::read;
using codec::read_enum;
using codec::read_milliseconds;
using codec::read_rank;
using codec::read_set;

template <typename T>
using Vector = flatbuffers::Vector<T>;

/// The verifier looks at where a vector begins, not at where its elements do.
template <typename T>
void require_aligned(const Vector<T>& vector) {
  if (vector.size() > 0 && reinterpret_cast<std::uintptr_t>(vector.Data()) % alignof(T) != 0)
    throw ProtocolError("a list of numbers that no encoder places there");
}

SlotSet read(const Vector<std::uint64_t>* words) {
  if (words == nullptr) return {};
  require_aligned(*words);
  return SlotSet(std::vector<std::uint64_t>(words->begin(), words->end()));
}

/// The number of elements fits, also in bytes.
Shape read(const Vector<std::int64_t>& in) {
  constexpr std::int64_t most = std::int64_t{1} << 59;
  require_aligned(in);
  std::vector<std::int64_t> lengths(in.begin(), in.end());
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (i == 0 && lengths[i] == any_length) continue;
    if (lengths[i] < 0 || (lengths[i] > 0 && elements > most / lengths[i]))
      throw ProtocolError("a shape that no tensor has");
    elements *= lengths[i];
  }
  return Shape(lengths);
}

double read_scale(double scale) {
  if (!std::isfinite(scale)) throw ProtocolError("a scale that is not finite");
  return scale;
}

TensorSpec read(const wire::TensorSpec& in) {
  TensorSpec tensor{read_enum(in.dtype(), DType::boolean, "dtype"), {}};
  if (in.shape() != nullptr) tensor.shape = read(*in.shape());
  return tensor;
}

Descriptor read(const wire::Descriptor& in) {
  Descriptor descriptor;
  descriptor.type = read_enum(in.type(), OperationType::remove_process_set, "operation");
  if (in.tensors() != nullptr)
    for (const wire::TensorSpec* tensor : *in.tensors())
      descriptor.tensors.push_back(read(*tensor));
  descriptor.op = read_enum(in.op(), ReduceOp::adasum, "reduce op");
  descriptor.root = in.root();
  descriptor.prescale = read_scale(in.prescale());
  descriptor.postscale = read_scale(in.postscale());
  descriptor.compression = read_enum(in.compression(), Compression::bf16, "compression");
  descriptor.average_over = read_enum(in.average_over(), AverageOver::present, "divisor");
  descriptor.alone = in.alone();
  descriptor.device = {read_enum(in.device_type(), DeviceType::cuda, "device"), in.device_index()};
  descriptor.step = in.step();
  descriptor.ranks = read(in.ranks());
  descriptor.removed = in.removed();
  return descriptor;
}

Readiness read(const wire::Readiness& in) {
  Readiness readiness;
  readiness.key = read(*in.key());
  readiness.others = read(in.others());
  for (const wire::Variant* variant : *in.variants())
    readiness.variants.push_back({read(*variant->descriptor()), read(variant->ranks())});
  if (readiness.variants.empty()) throw ProtocolError("readiness without a descriptor");
  return readiness;
}

Departure read(const wire::Departure& in) {
  return {read_rank(in.rank()), in.clean(), read(in.reason())};
}

Lag read(const wire::Lag& in) {
  Lag lag;
  lag.key = read(*in.key());
  lag.type = read_enum(in.type(), OperationType::remove_process_set, "operation");
  lag.submitted = read(in.submitted());
  lag.waited = read_milliseconds(in.waited_ms());
  return lag;
}

Spelled read(const wire::Spelled& in) {
  Spelled spelled;
  spelled.key = read(*in.key());
  spelled.descriptor = read(*in.descriptor());
  if (in.slot() > std::numeric_limits<Slot>::max()) throw ProtocolError("a slot beyond all");
  if (in.slot() >= 0) spelled.slot = static_cast<Slot>(in.slot());
  return spelled;
}

BatchEntry read(const wire::BatchEntry& in) {
  BatchEntry batch;
  batch.set = read_set(in.set());
  batch.absent = read(in.absent());
  batch.slots = read(in.slots());
  if (in.spelled() != nullptr)
    for (const wire::Spelled* item : *in.spelled()) batch.spelled.push_back(read(*item));
  return batch;
}

MismatchEntry read(const wire::MismatchEntry& in) {
  MismatchEntry entry;
  entry.conflict = read(*in.conflict());
  entry.absent = read(in.absent());
  return entry;
}

AddSetEntry read(const wire::AddSetEntry& in) {
  AddSetEntry entry;
  entry.key = read(*in.key());
  entry.set = read_set(in.set());
  entry.ranks = read(in.ranks());
  return entry;
}

RemoveSetEntry read(const wire::RemoveSetEntry& in) {
  RemoveSetEntry entry;
  entry.key = read(*in.key());
  entry.set = read_set(in.set());
  return entry;
}

StallEntry read(const wire::StallEntry& in) {
  StallEntry entry;
  entry.lag = read(*in.lag());
  entry.missing = read(in.missing());
  entry.details = read(in.details());
  return entry;
}

PlanItem read(const wire::PlanItem& in) {
  return {read(*in.key()), read(*in.descriptor()), in.number_stride(), in.step_stride()};
}

PlanEntry read(const wire::PlanEntry& in) {
  PlanEntry entry;
  entry.epoch = in.epoch();
  if (in.usual_ns() < 0) throw ProtocolError("a plan that takes less than no time");
  entry.usual = std::chrono::nanoseconds(in.usual_ns());
  for (const wire::PlanBatch* batch : *in.batches()) {
    std::vector<PlanItem>& items = entry.batches.emplace_back();
    for (const wire::PlanItem* item : *batch->items()) items.push_back(read(*item));
  }
  return entry;
}

Entry read(const wire::Entry& in) {
  Entry entry;
  entry.sequence = in.sequence();
  switch (in.body_type()) {
    case wire::Body_BatchEntry: entry.body = read(*in.body_as_BatchEntry()); return entry;
    case wire::Body_MismatchEntry: entry.body = read(*in.body_as_MismatchEntry()); return entry;
    case wire::Body_JoinEntry:
      entry.body = JoinEntry{read_rank(in.body_as_JoinEntry()->last())};
      return entry;
    case wire::Body_AddSetEntry: entry.body = read(*in.body_as_AddSetEntry()); return entry;
    case wire::Body_RemoveSetEntry: entry.body = read(*in.body_as_RemoveSetEntry()); return entry;
    case wire::Body_DepartureEntry:
      entry.body = DepartureEntry{read(*in.body_as_DepartureEntry()->departure())};
      return entry;
    case wire::Body_StallEntry: entry.body = read(*in.body_as_StallEntry()); return entry;
    case wire::Body_InquiryEntry:
      entry.body = InquiryEntry{read(*in.body_as_InquiryEntry()->key())};
      return entry;
    case wire::Body_EndEntry: entry.body = EndEntry{}; return entry;
    case wire::Body_PlanEntry: entry.body = read(*in.body_as_PlanEntry()); return entry;
    default: throw ProtocolError("unknown kind of log entry");
  }
}

Upward read(const wire::Upward& in) {
  Upward message;
  message.epoch = in.epoch();
  if (in.joins() != nullptr)
    for (const std::int32_t rank : *in.joins()) message.joins.push_back(read_rank(rank));
  message.slots = read(in.slots());
  if (in.ready() != nullptr)
    for (const wire::Readiness* item : *in.ready()) message.ready.push_back(read(*item));
  if (in.departures() != nullptr)
    for (const wire::Departure* item : *in.departures()) message.departures.push_back(read(*item));
  if (in.lags() != nullptr)
    for (const wire::Lag* item : *in.lags()) message.lags.push_back(read(*item));
  if (in.statuses() != nullptr)
    for (const wire::Status* item : *in.statuses())
      message.statuses.push_back(
          decode_status(std::as_bytes(std::span(item->bytes()->data(), item->bytes()->size()))));
  return message;
}

Downward read(const wire::Downward& in) {
  Downward message;
  if (in.entries() != nullptr)
    for (const wire::Entry* item : *in.entries()) message.entries.push_back(read(*item));
  return message;
}

}  // namespace

Envelope decode(std::span<const std::byte> message) {
  const codec::Aligned aligned(message);
  const std::span<const std::byte> bytes = aligned.bytes();
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier = codec::verifier_of(bytes);
  if (bytes.empty() || !wire::VerifyEnvelopeBuffer(verifier))
    throw ProtocolError("a control message of " + std::to_string(bytes.size()) +
                        " bytes is damaged");
  const wire::Envelope& envelope = *wire::GetEnvelope(data);
  if (const wire::Upward* upward = envelope.content_as_Upward())
    return {envelope.session(), read(*upward)};
  if (const wire::Downward* downward = envelope.content_as_Downward())
    return {envelope.session(), read(*downward)};
  throw ProtocolError("unknown kind of control message");
}

}  // namespace kolo::negotiation
