#include "negotiation/codec.hpp"

#include <flatbuffers/flatbuffers.h>

#include <span>
#include <string>

#include "negotiation/codec_status.hpp"
#include "wire_generated.h"

namespace kolo::negotiation {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
template <typename T>
using Vector = flatbuffers::Vector<T>;

// ---- writing ----

Offset<Vector<const wire::RankRange*>> write(FlatBufferBuilder& out, const RankSet& ranks) {
  std::vector<wire::RankRange> ranges;
  ranges.reserve(ranks.ranges().size());
  for (const RankSet::Range& range : ranks.ranges()) ranges.emplace_back(range.first, range.last);
  return out.CreateVectorOfStructs(ranges);
}

Offset<wire::Key> write(FlatBufferBuilder& out, const Key& key) {
  const auto name = key.named() ? out.CreateString(key.name) : 0;
  return wire::CreateKey(out, name, key.number, key.set);
}

Offset<wire::Descriptor> write(FlatBufferBuilder& out, const Descriptor& descriptor) {
  std::vector<Offset<wire::TensorSpec>> specs;
  specs.reserve(descriptor.tensors.size());
  for (const TensorSpec& tensor : descriptor.tensors) {
    const auto shape = out.CreateVector(tensor.shape.lengths().data(), tensor.shape.dimensions());
    specs.push_back(wire::CreateTensorSpec(out, static_cast<std::uint8_t>(tensor.dtype), shape));
  }
  const auto tensors = out.CreateVector(specs);
  const auto ranks = descriptor.ranks.empty() ? 0 : write(out, descriptor.ranks);
  return wire::CreateDescriptor(
      out, static_cast<std::uint8_t>(descriptor.type), tensors,
      static_cast<std::uint8_t>(descriptor.op), descriptor.root, descriptor.prescale,
      descriptor.postscale, static_cast<std::uint8_t>(descriptor.compression),
      static_cast<std::uint8_t>(descriptor.average_over), descriptor.alone,
      static_cast<std::uint8_t>(descriptor.device.type), descriptor.device.index, descriptor.step,
      ranks, descriptor.removed);
}

Offset<wire::Variant> write(FlatBufferBuilder& out, const Variant& variant) {
  const auto descriptor = write(out, variant.descriptor);
  return wire::CreateVariant(out, descriptor, write(out, variant.ranks));
}

Offset<wire::Readiness> write(FlatBufferBuilder& out, const Readiness& readiness);
Offset<wire::Departure> write(FlatBufferBuilder& out, const Departure& departure);
Offset<wire::Lag> write(FlatBufferBuilder& out, const Lag& lag);
Offset<wire::Status> write(FlatBufferBuilder& out, const RankStatus& status);
Offset<wire::Spelled> write(FlatBufferBuilder& out, const Spelled& spelled);
Offset<wire::PlanItem> write(FlatBufferBuilder& out, const PlanItem& item);
Offset<wire::PlanBatch> write(FlatBufferBuilder& out, const std::vector<PlanItem>& batch);
Offset<wire::Entry> write(FlatBufferBuilder& out, const Entry& entry);

template <typename Item>
auto write_all(FlatBufferBuilder& out, const std::vector<Item>& items) {
  std::vector<decltype(write(out, items.front()))> offsets;
  offsets.reserve(items.size());
  for (const Item& item : items) offsets.push_back(write(out, item));
  return out.CreateVector(offsets);
}

Offset<wire::Readiness> write(FlatBufferBuilder& out, const Readiness& readiness) {
  const auto key = write(out, readiness.key);
  const auto variants = write_all(out, readiness.variants);
  return wire::CreateReadiness(out, key, variants, write(out, readiness.others));
}

Offset<wire::Departure> write(FlatBufferBuilder& out, const Departure& departure) {
  const auto reason = out.CreateString(departure.reason);
  return wire::CreateDeparture(out, departure.rank, departure.clean, reason);
}

Offset<wire::Lag> write(FlatBufferBuilder& out, const Lag& lag) {
  const auto key = write(out, lag.key);
  return wire::CreateLag(out, key, static_cast<std::uint8_t>(lag.type), write(out, lag.submitted),
                         lag.waited.count());
}

Offset<wire::Status> write(FlatBufferBuilder& out, const RankStatus& status) {
  const std::vector<std::byte> bytes = encode_status(status);
  return wire::CreateStatus(
      out, out.CreateVector(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()));
}

Offset<wire::Spelled> write(FlatBufferBuilder& out, const Spelled& spelled) {
  const auto key = write(out, spelled.key);
  const auto descriptor = write(out, spelled.descriptor);
  return wire::CreateSpelled(out, key, descriptor, spelled.slot ? std::int64_t{*spelled.slot} : -1);
}

Offset<wire::PlanItem> write(FlatBufferBuilder& out, const PlanItem& item) {
  const auto key = write(out, item.key);
  const auto descriptor = write(out, item.descriptor);
  return wire::CreatePlanItem(out, key, descriptor, item.number_stride, item.step_stride);
}

Offset<wire::PlanBatch> write(FlatBufferBuilder& out, const std::vector<PlanItem>& batch) {
  return wire::CreatePlanBatch(out, write_all(out, batch));
}

struct BodyWriter {
  FlatBufferBuilder& out;

  std::pair<wire::Body, Offset<void>> operator()(const BatchEntry& batch) const {
    const auto absent = batch.absent.empty() ? 0 : write(out, batch.absent);
    const auto slots = out.CreateVector(batch.slots.words());
    const auto spelled = write_all(out, batch.spelled);
    return {wire::Body_BatchEntry,
            wire::CreateBatchEntry(out, batch.set, absent, slots, spelled).Union()};
  }
  std::pair<wire::Body, Offset<void>> operator()(const MismatchEntry& entry) const {
    const auto conflict = write(out, entry.conflict);
    const auto absent = write(out, entry.absent);
    return {wire::Body_MismatchEntry, wire::CreateMismatchEntry(out, conflict, absent).Union()};
  }
  std::pair<wire::Body, Offset<void>> operator()(const JoinEntry& entry) const {
    return {wire::Body_JoinEntry, wire::CreateJoinEntry(out, entry.last).Union()};
  }
  std::pair<wire::Body, Offset<void>> operator()(const AddSetEntry& entry) const {
    const auto key = write(out, entry.key);
    const auto ranks = write(out, entry.ranks);
    return {wire::Body_AddSetEntry, wire::CreateAddSetEntry(out, key, entry.set, ranks).Union()};
  }
  std::pair<wire::Body, Offset<void>> operator()(const RemoveSetEntry& entry) const {
    const auto key = write(out, entry.key);
    return {wire::Body_RemoveSetEntry, wire::CreateRemoveSetEntry(out, key, entry.set).Union()};
  }
  std::pair<wire::Body, Offset<void>> operator()(const DepartureEntry& entry) const {
    const auto departure = write(out, entry.departure);
    return {wire::Body_DepartureEntry, wire::CreateDepartureEntry(out, departure).Union()};
  }
  std::pair<wire::Body, Offset<void>> operator()(const StallEntry& entry) const {
    const auto lag = write(out, entry.lag);
    const auto missing = write(out, entry.missing);
    return {wire::Body_StallEntry,
            wire::CreateStallEntry(out, lag, missing, out.CreateString(entry.details)).Union()};
  }
  std::pair<wire::Body, Offset<void>> operator()(const InquiryEntry& entry) const {
    const auto key = write(out, entry.key);
    return {wire::Body_InquiryEntry, wire::CreateInquiryEntry(out, key).Union()};
  }
  std::pair<wire::Body, Offset<void>> operator()(const EndEntry&) const {
    return {wire::Body_EndEntry, wire::CreateEndEntry(out).Union()};
  }
  std::pair<wire::Body, Offset<void>> operator()(const PlanEntry& entry) const {
    const auto batches = write_all(out, entry.batches);
    return {wire::Body_PlanEntry,
            wire::CreatePlanEntry(out, entry.epoch, batches, entry.usual.count()).Union()};
  }
};

Offset<wire::Entry> write(FlatBufferBuilder& out, const Entry& entry) {
  const auto [type, body] = std::visit(BodyWriter{out}, entry.body);
  return wire::CreateEntry(out, entry.sequence, type, body);
}

std::vector<std::byte> seal(FlatBufferBuilder& out, std::uint64_t session, wire::Content type,
                            Offset<void> content) {
  out.Finish(wire::CreateEnvelope(out, session, type, content));
  const auto* begin = reinterpret_cast<const std::byte*>(out.GetBufferPointer());
  return {begin, begin + out.GetSize()};
}

// ---- reading: the verifier has checked offsets and required fields, not values ----

template <typename Enum>
Enum read_enum(std::uint8_t value, Enum last, const char* what) {
  if (value > static_cast<std::uint8_t>(last))
    throw ProtocolError(std::string("unknown ") + what + ' ' + std::to_string(value));
  return static_cast<Enum>(value);
}

RankSet read(const Vector<const wire::RankRange*>* ranges) {
  RankSet ranks;
  if (ranges == nullptr) return ranks;
  for (const wire::RankRange* range : *ranges) {
    if (range->first() < 0 || range->last() < range->first())
      throw ProtocolError("a range of ranks that is none");
    ranks.insert(RankSet::range(range->first(), range->last()));
  }
  return ranks;
}

SlotSet read(const Vector<std::uint64_t>* words) {
  if (words == nullptr) return {};
  return SlotSet(std::vector<std::uint64_t>(words->begin(), words->end()));
}

Key read(const wire::Key& key) {
  if (key.set() < 0) throw ProtocolError("a process set without a number");
  return {key.name() != nullptr ? key.name()->str() : std::string(), key.number(), key.set()};
}

TensorSpec read(const wire::TensorSpec& in) {
  TensorSpec tensor{read_enum(in.dtype(), DType::boolean, "dtype"), {}};
  if (in.shape() != nullptr)
    tensor.shape = Shape(std::vector<std::int64_t>(in.shape()->begin(), in.shape()->end()));
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
  descriptor.prescale = in.prescale();
  descriptor.postscale = in.postscale();
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
  return {in.rank(), in.clean(), in.reason() != nullptr ? in.reason()->str() : std::string()};
}

Lag read(const wire::Lag& in) {
  Lag lag;
  lag.key = read(*in.key());
  lag.type = read_enum(in.type(), OperationType::remove_process_set, "operation");
  lag.submitted = read(in.submitted());
  lag.waited = std::chrono::milliseconds(in.waited_ms());
  return lag;
}

Spelled read(const wire::Spelled& in) {
  Spelled spelled;
  spelled.key = read(*in.key());
  spelled.descriptor = read(*in.descriptor());
  if (in.slot() >= 0) spelled.slot = static_cast<Slot>(in.slot());
  return spelled;
}

BatchEntry read(const wire::BatchEntry& in) {
  BatchEntry batch;
  batch.set = in.set();
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
  entry.set = in.set();
  entry.ranks = read(in.ranks());
  return entry;
}

RemoveSetEntry read(const wire::RemoveSetEntry& in) {
  RemoveSetEntry entry;
  entry.key = read(*in.key());
  entry.set = in.set();
  return entry;
}

StallEntry read(const wire::StallEntry& in) {
  StallEntry entry;
  entry.lag = read(*in.lag());
  entry.missing = read(in.missing());
  if (in.details() != nullptr) entry.details = in.details()->str();
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
    case wire::Body_JoinEntry: entry.body = JoinEntry{in.body_as_JoinEntry()->last()}; return entry;
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
  if (in.joins() != nullptr) message.joins.assign(in.joins()->begin(), in.joins()->end());
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

std::vector<std::byte> encode(std::uint64_t session, const Upward& message) {
  FlatBufferBuilder out;
  const auto joins = out.CreateVector(message.joins);
  const auto slots = out.CreateVector(message.slots.words());
  const auto ready = write_all(out, message.ready);
  const auto departures = write_all(out, message.departures);
  const auto lags = write_all(out, message.lags);
  const auto statuses = message.statuses.empty() ? 0 : write_all(out, message.statuses);
  const auto content =
      wire::CreateUpward(out, joins, slots, ready, departures, lags, message.epoch, statuses);
  return seal(out, session, wire::Content_Upward, content.Union());
}

std::vector<std::byte> encode(std::uint64_t session, const Downward& message) {
  FlatBufferBuilder out;
  const auto content = wire::CreateDownward(out, write_all(out, message.entries));
  return seal(out, session, wire::Content_Downward, content.Union());
}

Envelope decode(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size());
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
