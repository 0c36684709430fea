// SPDX-License-Identifier: Apache-2.0
// The correspondence between the structs of message.hpp and the tables of rendezvous.fbs. Reading
// and writing both follow these lists, so that neither side can forget a field.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <functional>
#include <tuple>

#include "rendezvous/message.hpp"
#include "rendezvous_generated.h"

namespace kolo::internal::rendezvous {

/// The members of a struct in the order in which the schema lists the fields of its table.
template <typename SchemaTable, auto... members>
struct Fields {
  using Table = SchemaTable;

  template <typename Item>
  static auto of(Item& item) {
    static_assert(sizeof...(members) == Table::Traits::fields_number);
    return std::forward_as_tuple(std::invoke(members, item)...);
  }
};

// One overload per struct. Only their return types are used, so they are never defined.

auto layout_of(const Hello*)
    -> Fields<wire::Hello, &Hello::nonce, &Hello::role, &Hello::process, &Hello::host,
              &Hello::machine, &Hello::pid, &Hello::wanted_rank, &Hello::slots, &Hello::version,
              &Hello::job>;
auto layout_of(const Proof*) -> Fields<wire::Proof, &Proof::proof>;
auto layout_of(const Challenge*) -> Fields<wire::Challenge, &Challenge::nonce, &Challenge::proof>;
auto layout_of(const Join*) -> Fields<wire::Join, &Join::generation, &Join::commit, &Join::orderly>;
auto layout_of(const Contribution*) -> Fields<wire::Contribution, &Contribution::generation,
                                              &Contribution::sequence, &Contribution::payload>;
auto layout_of(const Begun*) -> Fields<wire::Begun, &Begun::generation>;
auto layout_of(const Completed*) -> Fields<wire::Completed, &Completed::generation>;
auto layout_of(const Leave*) -> Fields<wire::Leave, &Leave::generation>;
auto layout_of(const Failed*) -> Fields<wire::Failed, &Failed::reason>;
auto layout_of(const FailureReport*)
    -> Fields<wire::FailureReport, &FailureReport::generation, &FailureReport::ranks,
              &FailureReport::reason, &FailureReport::stalled>;
auto layout_of(const Exited*) -> Fields<wire::Exited, &Exited::process, &Exited::status>;
auto layout_of(const Removal*) -> Fields<wire::Removal, &Removal::reason>;
auto layout_of(const Keepalive*) -> Fields<wire::Keepalive, &Keepalive::count>;
auto layout_of(const Welcome*)
    -> Fields<wire::Welcome, &Welcome::lease, &Welcome::process, &Welcome::elastic>;
auto layout_of(const Refusal*) -> Fields<wire::Refusal, &Refusal::reason, &Refusal::retry>;
auto layout_of(const Member*) -> Fields<wire::Member, &Member::process, &Member::host,
                                        &Member::machine, &Member::pid, &Member::commit>;
auto layout_of(const Roster*) -> Fields<wire::Roster, &Roster::generation, &Roster::members>;
auto layout_of(const Interruption*) -> Fields<wire::Interruption, &Interruption::generation,
                                              &Interruption::ranks, &Interruption::reason>;
auto layout_of(const Payload*) -> Fields<wire::Payload, &Payload::bytes>;
auto layout_of(const Result*)
    -> Fields<wire::Result, &Result::generation, &Result::sequence, &Result::payloads>;
auto layout_of(const Announcement*)
    -> Fields<wire::Announcement, &Announcement::generation, &Announcement::reason>;
auto layout_of(const Launch*) -> Fields<wire::Launch, &Launch::process, &Launch::rank,
                                        &Launch::size, &Launch::local_rank, &Launch::local_size>;
auto layout_of(const Start*) -> Fields<wire::Start, &Start::launches>;
auto layout_of(const Kill*) -> Fields<wire::Kill, &Kill::process, &Kill::reason>;
auto layout_of(const End*) -> Fields<wire::End, &End::status, &End::reason>;
auto layout_of(const Signal*) -> Fields<wire::Signal, &Signal::number>;

template <typename Item>
using LayoutOf = decltype(layout_of(static_cast<Item*>(nullptr)));
template <typename Item>
using TableOf = typename LayoutOf<Item>::Table;

}  // namespace kolo::internal::rendezvous
