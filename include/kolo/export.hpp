// SPDX-License-Identifier: Apache-2.0
// What a shared library of Kolo shows to programs: the names with KOLO_EXPORT. All others are
// hidden from them, since Kolo is compiled with -fvisibility=hidden.
#pragma once

/// Before the declaration of a function, and between `class` and the name of a class. A class with
/// virtual functions, and one that is thrown, is exported as a whole: programs need its type
/// information. Of other classes only the member functions that are not inline are exported.
#define KOLO_EXPORT [[gnu::visibility("default")]]
