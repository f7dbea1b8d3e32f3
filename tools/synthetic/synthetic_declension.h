// German noun phrases: articles, adjective endings (strong, mixed, weak), noun endings, by gender, number and case.
#pragma once

#include <string>
#include <string_view>

#include "tools/synthetic/synthetic_clause.h"

namespace hadal {

// Gender does not matter in the plural.
struct Form {
  Gender gender = Gender::kMasculine;
  bool plural = false;
  Case grammatical_case = Case::kNominative;
};

// der, die, das, …: the definite article.
std::string_view DefiniteArticle(const Form& form);
// The relative pronoun: as the article, but "denen" in the dative plural.
std::string_view RelativePronoun(const Form& form);

// The parts of a declined phrase. `determiner` is empty if there is none.
struct DeclinedPhrase {
  std::string determiner;
  std::string adjective;
  std::string noun;
};

// Declines a phrase with a noun. `negative`: uses kein instead of its indefinite determiner.
// REQUIRES: phrase.noun != nullptr.
DeclinedPhrase Decline(const NounPhrase& phrase, Case grammatical_case, bool negative);

}  // namespace hadal
