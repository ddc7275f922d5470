// What two ops say of an id outside [0, rows): "id 7 at position 3" kOutside 5 kWayOut.
#pragma once

namespace merlin {

constexpr char kOutside[] = " is outside [0, ";
constexpr char kWayOut[] =
    "); raise vocabulary_size, or choose ids=Identity(out_of_range='zero' or 'clip') or a map that "
    "takes every id, such as Modulo";

}  // namespace merlin
