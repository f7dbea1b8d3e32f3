// Writes a Sentence in English: do-support, agreement, "a" and "an", relative pronouns, stranded prepositions.
#pragma once

#include <string>

#include "tools/synthetic/synthetic_clause.h"

namespace hadal {

std::string WriteEnglish(const Sentence& sentence);

}  // namespace hadal
