// SPDX-License-Identifier: Apache-2.0
// The correspondence between the structs of message.hpp and the tables of wire.fbs. Reading and
// writing both follow these lists, so that neither side can forget a field.
#pragma once

#include <functional>
#include <vector>

#include "base/flatbuffer_codec.hpp"
#include "negotiation/wire/message.hpp"
#include "wire_generated.h"

namespace kolo::internal::negotiation {

// One overload per struct. Only their return types are used, so they are never defined.

// ---- parts of several messages ----

auto layout_of(const Key*) -> Fields<wire::Key, &Key::name, &Key::number, &Key::set>;
auto layout_of(const TensorSpec*)
    -> Fields<wire::TensorSpec, &TensorSpec::dtype, &TensorSpec::shape>;
auto layout_of(const Device*) -> Fields<wire::Device, &Device::type, &Device::index>;
auto layout_of(const Descriptor*)
    -> Fields<wire::Descriptor, &Descriptor::type, &Descriptor::tensors, &Descriptor::op,
              &Descriptor::root, &Descriptor::prescale, &Descriptor::postscale,
              &Descriptor::compression, &Descriptor::average_over, &Descriptor::alone,
              &Descriptor::device, &Descriptor::step, &Descriptor::ranks, &Descriptor::removed>;
auto layout_of(const Variant*) -> Fields<wire::Variant, &Variant::descriptor, &Variant::ranks>;
auto layout_of(const Readiness*)
    -> Fields<wire::Readiness, &Readiness::key, &Readiness::variants, &Readiness::others>;
auto layout_of(const Failure*)
    -> Fields<wire::Failure, &Failure::kind, &Failure::message, &Failure::tensor, &Failure::ranks>;
auto layout_of(const Departure*) -> Fields<wire::Departure, &Departure::rank, &Departure::reason>;
auto layout_of(const Lag*)
    -> Fields<wire::Lag, &Lag::key, &Lag::type, &Lag::submitted, &Lag::waited>;
auto layout_of(const WaitingOperation*)
    -> Fields<wire::WaitingOperation, &WaitingOperation::key, &WaitingOperation::type,
              &WaitingOperation::waited>;
auto layout_of(const RankStatus*)
    -> Fields<wire::RankStatus, &RankStatus::rank, &RankStatus::process, &RankStatus::state,
              &RankStatus::heard, &RankStatus::idle, &RankStatus::submitted, &RankStatus::waits,
              &RankStatus::blocked, &RankStatus::pending, &RankStatus::operations,
              &RankStatus::batch, &RankStatus::awaits, &RankStatus::awaited, &RankStatus::ended>;

// ---- entries of the log ----

auto layout_of(const UncachedOperation*)
    -> Fields<wire::UncachedOperation, &UncachedOperation::key, &UncachedOperation::descriptor,
              &UncachedOperation::slot>;
auto layout_of(const BatchEntry*) -> Fields<wire::BatchEntry, &BatchEntry::set, &BatchEntry::absent,
                                            &BatchEntry::slots, &BatchEntry::uncached>;
auto layout_of(const MismatchEntry*)
    -> Fields<wire::MismatchEntry, &MismatchEntry::conflict, &MismatchEntry::absent>;
auto layout_of(const JoinEntry*) -> Fields<wire::JoinEntry, &JoinEntry::last>;
auto layout_of(const AddSetEntry*)
    -> Fields<wire::AddSetEntry, &AddSetEntry::key, &AddSetEntry::set, &AddSetEntry::ranks>;
auto layout_of(const RemoveSetEntry*)
    -> Fields<wire::RemoveSetEntry, &RemoveSetEntry::key, &RemoveSetEntry::set>;
auto layout_of(const StallEntry*)
    -> Fields<wire::StallEntry, &StallEntry::lag, &StallEntry::missing, &StallEntry::details>;
auto layout_of(const InquiryEntry*) -> Fields<wire::InquiryEntry, &InquiryEntry::key>;
auto layout_of(const EndEntry*) -> Fields<wire::EndEntry>;
auto layout_of(const PlanItem*) -> Fields<wire::PlanItem, &PlanItem::key, &PlanItem::descriptor,
                                          &PlanItem::number_stride, &PlanItem::step_stride>;
auto layout_of(const std::vector<PlanItem>*) -> Fields<wire::PlanBatch, std::identity{}>;
auto layout_of(const PlanEntry*)
    -> Fields<wire::PlanEntry, &PlanEntry::epoch, &PlanEntry::batches, &PlanEntry::usual>;

// ---- messages ----

auto layout_of(const Entry*) -> Fields<wire::Entry>;  // its union is read and written separately
auto layout_of(const ReadinessReport*)
    -> Fields<wire::ReadinessReport, &ReadinessReport::joins, &ReadinessReport::slots,
              &ReadinessReport::ready, &ReadinessReport::departures, &ReadinessReport::lags,
              &ReadinessReport::epoch, &ReadinessReport::statuses, &ReadinessReport::removals,
              &ReadinessReport::finished>;
auto layout_of(const LogUpdate*) -> Fields<wire::LogUpdate, &LogUpdate::entries>;
auto layout_of(const Heartbeat*)
    -> Fields<wire::Heartbeat, &Heartbeat::unresponsive_ancestor, &Heartbeat::interval>;
auto layout_of(const RankPace*)
    -> Fields<wire::RankPace, &RankPace::rank, &RankPace::host, &RankPace::steps, &RankPace::step,
              &RankPace::computing, &RankPace::bytes_per_second, &RankPace::waits_for>;
auto layout_of(const OperationPace*)
    -> Fields<wire::OperationPace, &OperationPace::name, &OperationPace::set,
              &OperationPace::longest, &OperationPace::slowest, &OperationPace::sum>;
auto layout_of(const PaceReport*)
    -> Fields<wire::PaceReport, &PaceReport::ranks, &PaceReport::operations>;

template <typename Item>
using LayoutOf = decltype(layout_of(static_cast<Item*>(nullptr)));
template <typename Item>
using TableOf = typename LayoutOf<Item>::Table;

}  // namespace kolo::internal::negotiation
