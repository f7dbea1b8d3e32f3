#include "tools/synthetic/synthetic_declension.h"

#include <utility>

namespace hadal {
namespace {

// Index of the column masculine, feminine, neuter, plural.
size_t Column(const Form& form) { return form.plural ? 3 : static_cast<size_t>(form.gender); }
size_t Row(const Form& form) { return static_cast<size_t>(form.grammatical_case); }

// [nominative, accusative, dative] x [masculine, feminine, neuter, plural]
using Endings = std::string_view[3][4];

constexpr Endings kDefinite = {
    {"der", "die", "das", "die"}, {"den", "die", "das", "die"}, {"dem", "der", "dem", "den"}};
// dies-, jed-
constexpr Endings kDerWord = {{"er", "e", "es", "e"}, {"en", "e", "es", "e"}, {"em", "er", "em", "en"}};
// ein-, kein-, mein-
constexpr Endings kEinWord = {{"", "e", "", "e"}, {"en", "e", "", "e"}, {"em", "er", "em", "en"}};
// Adjective endings after der-words, after ein-words, and without either.
constexpr Endings kWeakAdjective = {{"e", "e", "e", "en"}, {"en", "e", "e", "en"}, {"en", "en", "en", "en"}};
constexpr Endings kMixedAdjective = {{"er", "e", "es", "en"}, {"en", "e", "es", "en"}, {"en", "en", "en", "en"}};
constexpr Endings kStrongAdjective = {{"er", "e", "es", "e"}, {"en", "e", "es", "e"}, {"em", "er", "em", "en"}};

std::string Inflect(std::string_view stem, const Endings& endings, const Form& form) {
  return std::string(stem).append(endings[Row(form)][Column(form)]);
}

std::string DeclineNoun(const Noun& noun, const Form& form) {
  if (!form.plural) {
    const bool oblique = form.grammatical_case != Case::kNominative;
    return std::string(noun.weak && oblique ? noun.german_plural : noun.german);
  }
  std::string word(noun.german_plural);
  if (form.grammatical_case == Case::kDative && !word.ends_with('n') && !word.ends_with('s')) word.push_back('n');
  return word;
}

std::string DeclineAdjective(const Adjective* adjective, const Endings& endings, const Form& form) {
  return adjective == nullptr ? std::string() : Inflect(adjective->stem, endings, form);
}

}  // namespace

std::string_view DefiniteArticle(const Form& form) { return kDefinite[Row(form)][Column(form)]; }

std::string_view RelativePronoun(const Form& form) {
  return form.plural && form.grammatical_case == Case::kDative ? "denen" : DefiniteArticle(form);
}

DeclinedPhrase Decline(const NounPhrase& phrase, Case grammatical_case, bool negative) {
  const Form form = {phrase.noun->gender, phrase.plural, grammatical_case};
  const Determiner& determiner = *phrase.determiner;
  const bool bare = phrase.plural || (phrase.noun->classes & kDrink) != 0;  // German has no indefinite article
  DeclinedPhrase declined = {.noun = DeclineNoun(*phrase.noun, form)};
  const auto with = [&](std::string word, const Endings& adjective_endings) {
    declined.determiner = std::move(word);
    declined.adjective = DeclineAdjective(phrase.adjective, adjective_endings, form);
    return declined;
  };
  if (negative) return with(Inflect("kein", kEinWord, form), kMixedAdjective);
  switch (determiner.kind) {
    case DeterminerKind::kDefinite:
      return with(std::string(DefiniteArticle(form)), kWeakAdjective);
    case DeterminerKind::kDemonstrative:
    case DeterminerKind::kEvery:
      return with(Inflect(determiner.german, kDerWord, form), kWeakAdjective);
    case DeterminerKind::kPossessive:
      return with(Inflect(determiner.german, kEinWord, form), kMixedAdjective);
    case DeterminerKind::kIndefinite:
      if (!bare) return with(Inflect(determiner.german, kEinWord, form), kMixedAdjective);
      return with("", kStrongAdjective);
    case DeterminerKind::kQuantity:
      break;
  }
  // zwei and drei do not change, viele and einige take n in the dative.
  const bool takes_n = grammatical_case == Case::kDative && determiner.german.ends_with('e');
  return with(std::string(determiner.german).append(takes_n ? "n" : ""), kStrongAdjective);
}

}  // namespace hadal
