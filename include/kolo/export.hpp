// SPDX-License-Identifier: Apache-2.0
// Marks the names that a shared library of Kolo exports. All other names are hidden, because Kolo
// is compiled with -fvisibility=hidden.
#pragma once

/// Write this macro before a function declaration, or between `class` and the name of a class. A
/// class that is thrown or has virtual functions is exported as a whole, because programs need its
/// type information. Other classes export only their non-inline member functions.
#define KOLO_EXPORT [[gnu::visibility("default")]]
