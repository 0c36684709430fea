#include "negotiation/codec.hpp"

#include <flatbuffers/flatbuffers.h>

#include <string>

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
  return wire::CreateKey(out, name, key.number);
}

Offset<wire::Descriptor> write(FlatBufferBuilder& out, const Descriptor& descriptor) {
  const auto shape = out.CreateVector(descriptor.shape.lengths());
  return wire::CreateDescriptor(
      out, static_cast<std::uint8_t>(descriptor.type), static_cast<std::uint8_t>(descriptor.dtype),
      shape, static_cast<std::uint8_t>(descriptor.op), descriptor.root, descriptor.prescale,
      descriptor.postscale, static_cast<std::uint8_t>(descriptor.device.type),
      descriptor.device.index, descriptor.step);
}

Offset<wire::Variant> write(FlatBufferBuilder& out, const Variant& variant) {
  const auto descriptor = write(out, variant.descriptor);
  return wire::CreateVariant(out, descriptor, write(out, variant.ranks));
}

Offset<wire::Readiness> write(FlatBufferBuilder& out, const Readiness& readiness);
Offset<wire::Departure> write(FlatBufferBuilder& out, const Departure& departure);
Offset<wire::Lag> write(FlatBufferBuilder& out, const Lag& lag);
Offset<wire::Spelled> write(FlatBufferBuilder& out, const Spelled& spelled);
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

Offset<wire::Spelled> write(FlatBufferBuilder& out, const Spelled& spelled) {
  const auto key = write(out, spelled.key);
  const auto descriptor = write(out, spelled.descriptor);
  return wire::CreateSpelled(out, key, descriptor, spelled.slot ? std::int64_t{*spelled.slot} : -1);
}

struct BodyWriter {
  FlatBufferBuilder& out;

  std::pair<wire::Body, Offset<void>> operator()(const BatchEntry& batch) const {
    const auto slots = out.CreateVector(batch.slots.words());
    const auto spelled = write_all(out, batch.spelled);
    return {wire::Body_BatchEntry, wire::CreateBatchEntry(out, slots, spelled).Union()};
  }
  std::pair<wire::Body, Offset<void>> operator()(const MismatchEntry& entry) const {
    const auto conflict = write(out, entry.conflict);
    return {wire::Body_MismatchEntry, wire::CreateMismatchEntry(out, conflict).Union()};
  }
  std::pair<wire::Body, Offset<void>> operator()(const DepartureEntry& entry) const {
    const auto departure = write(out, entry.departure);
    return {wire::Body_DepartureEntry, wire::CreateDepartureEntry(out, departure).Union()};
  }
  std::pair<wire::Body, Offset<void>> operator()(const StallEntry& entry) const {
    const auto lag = write(out, entry.lag);
    return {wire::Body_StallEntry, wire::CreateStallEntry(out, lag).Union()};
  }
  std::pair<wire::Body, Offset<void>> operator()(const InquiryEntry& entry) const {
    const auto key = write(out, entry.key);
    return {wire::Body_InquiryEntry, wire::CreateInquiryEntry(out, key).Union()};
  }
  std::pair<wire::Body, Offset<void>> operator()(const EndEntry&) const {
    return {wire::Body_EndEntry, wire::CreateEndEntry(out).Union()};
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
  return {key.name() != nullptr ? key.name()->str() : std::string(), key.number()};
}

Descriptor read(const wire::Descriptor& in) {
  Descriptor descriptor;
  descriptor.type = read_enum(in.type(), OperationType::barrier, "operation");
  descriptor.dtype = read_enum(in.dtype(), DType::boolean, "dtype");
  if (in.shape() != nullptr)
    descriptor.shape = Shape(std::vector<std::int64_t>(in.shape()->begin(), in.shape()->end()));
  descriptor.op = read_enum(in.op(), ReduceOp::sum, "reduce op");
  descriptor.root = in.root();
  descriptor.prescale = in.prescale();
  descriptor.postscale = in.postscale();
  descriptor.device = {read_enum(in.device_type(), DeviceType::cuda, "device"), in.device_index()};
  descriptor.step = in.step();
  return descriptor;
}

Readiness read(const wire::Readiness& in) {
  Readiness readiness{read(*in.key()), {}, read(in.others())};
  for (const wire::Variant* variant : *in.variants())
    readiness.variants.push_back({read(*variant->descriptor()), read(variant->ranks())});
  if (readiness.variants.empty()) throw ProtocolError("readiness without a descriptor");
  return readiness;
}

Departure read(const wire::Departure& in) {
  return {in.rank(), in.clean(), in.reason() != nullptr ? in.reason()->str() : std::string()};
}

Lag read(const wire::Lag& in) {
  return {read(*in.key()), read_enum(in.type(), OperationType::barrier, "operation"),
          read(in.submitted()), std::chrono::milliseconds(in.waited_ms())};
}

Spelled read(const wire::Spelled& in) {
  Spelled spelled{read(*in.key()), read(*in.descriptor()), {}};
  if (in.slot() >= 0) spelled.slot = static_cast<Slot>(in.slot());
  return spelled;
}

Entry read(const wire::Entry& in) {
  Entry entry;
  entry.sequence = in.sequence();
  switch (in.body_type()) {
    case wire::Body_BatchEntry: {
      BatchEntry batch;
      batch.slots = read(in.body_as_BatchEntry()->slots());
      if (const auto* spelled = in.body_as_BatchEntry()->spelled())
        for (const wire::Spelled* item : *spelled) batch.spelled.push_back(read(*item));
      entry.body = std::move(batch);
      return entry;
    }
    case wire::Body_MismatchEntry:
      entry.body = MismatchEntry{read(*in.body_as_MismatchEntry()->conflict())};
      return entry;
    case wire::Body_DepartureEntry:
      entry.body = DepartureEntry{read(*in.body_as_DepartureEntry()->departure())};
      return entry;
    case wire::Body_StallEntry:
      entry.body = StallEntry{read(*in.body_as_StallEntry()->lag())};
      return entry;
    case wire::Body_InquiryEntry:
      entry.body = InquiryEntry{read(*in.body_as_InquiryEntry()->key())};
      return entry;
    case wire::Body_EndEntry: entry.body = EndEntry{}; return entry;
    default: throw ProtocolError("unknown kind of log entry");
  }
}

Upward read(const wire::Upward& in) {
  Upward message;
  message.slots = read(in.slots());
  if (in.ready() != nullptr)
    for (const wire::Readiness* item : *in.ready()) message.ready.push_back(read(*item));
  if (in.departures() != nullptr)
    for (const wire::Departure* item : *in.departures()) message.departures.push_back(read(*item));
  if (in.lags() != nullptr)
    for (const wire::Lag* item : *in.lags()) message.lags.push_back(read(*item));
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
  const auto slots = out.CreateVector(message.slots.words());
  const auto ready = write_all(out, message.ready);
  const auto departures = write_all(out, message.departures);
  const auto lags = write_all(out, message.lags);
  const auto content = wire::CreateUpward(out, slots, ready, departures, lags);
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
