// Writes a Sentence in German: verb second in main clauses, verb last in subordinate ones, separable prefixes, the
// perfect's participle and the modal's infinitive at the end, case and agreement, nicht and kein.
//
// Order between the finite verb and the end of the clause: subject, pronoun objects, time, frequency, dative,
// accusative, nicht, prepositional object, place, predicative adjective.
#pragma once

#include <string>

#include "tools/synthetic/synthetic_clause.h"

namespace hadal {

std::string WriteGerman(const Sentence& sentence);

}  // namespace hadal
