// The half of the codec that makes bytes.
#include <flatbuffers/flatbuffers.h>

#include <utility>

#include "negotiation/codec.hpp"
#include "negotiation/codec_parts.hpp"
#include "negotiation/codec_status.hpp"
#include "wire_generated.h"

namespace kolo::negotiation {
namespace {

using codec::write;
using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

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

}  // namespace kolo::negotiation
