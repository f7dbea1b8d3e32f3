#include "tools/synthetic/synthetic_clause_sampler.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace hadal {
namespace {

constexpr uint32_t kLivingMask = kPerson | kAnimal;

// Whether the verb fits the clause, except for its frame.
bool VerbFits(const Verb& verb, const ClauseWish& wish, Tense tense) {
  if (tense == Tense::kPast && verb.past == verb.base) return false;
  if (wish.object_case_only && !verb.preposition_german.empty()) return false;
  if (wish.gap == Gap::kSubject && wish.head != nullptr) return (verb.subjects & wish.head->classes) != 0;
  if (wish.gap != Gap::kObject) return true;
  const uint32_t wanted = wish.head != nullptr ? wish.head->classes : wish.object_classes;
  return (verb.objects & wanted) != 0;
}

}  // namespace

Tense ClauseSampler::DrawTense(uint32_t tenses) {
  std::array<uint32_t, 5> weights = {35, 25, 20, 8, 12};  // in the order of Tense
  for (uint32_t i = 0; i < weights.size(); ++i) {
    if ((tenses & 1u << i) == 0) weights[i] = 0;
  }
  return static_cast<Tense>(draws_.Weighted(weights));
}

const Verb* ClauseSampler::DrawVerb(const ClauseWish& wish, Tense tense) {
  std::array<uint32_t, 8> weights = {18, 52, 14, 8, 8, 10, 10, 10};  // in the order of Frame
  for (uint32_t i = 0; i < weights.size(); ++i) {
    const auto fits = [&](const Verb& verb) {
      return verb.frame == static_cast<Frame>(i) && VerbFits(verb, wish, tense);
    };
    if ((wish.frames & 1u << i) == 0 || std::ranges::none_of(Verbs(), fits)) weights[i] = 0;
  }
  const auto frame = static_cast<Frame>(draws_.Weighted(weights));
  return draws_.Pick(Verbs(), [&](const Verb& verb) { return verb.frame == frame && VerbFits(verb, wish, tense); });
}

NounPhrase ClauseSampler::DrawPronoun(Use use, const Clause& clause) {
  const Pronoun* subject = clause.subject.pronoun;
  const auto fits = [&](const Pronoun& pronoun) {
    if (use == Use::kSubject) return !(clause.tense == Tense::kPast && pronoun.person == 2);
    if (subject == nullptr) return true;
    // "I see me", "we see me" and "they see them" would want reflexives or sound odd.
    return pronoun.person != subject->person || (pronoun.person == 3 && &pronoun != subject);
  };
  NounPhrase phrase;
  phrase.pronoun = draws_.Pick(Pronouns(), fits);
  return phrase;
}

const Determiner* ClauseSampler::DrawDeterminer(const NounPhrase& phrase, Use use, const Clause& clause) {
  const bool mass = (phrase.noun->classes & kDrink) != 0;
  std::array<uint32_t, 6> weights = {40, 10, 5, 25, 16, 0};  // in the order of DeterminerKind
  if (phrase.plural) weights = {38, 10, 0, 22, 14, 16};
  if (mass) weights = {25, 10, 0, 50, 15, 0};
  if (use == Use::kPlace) weights = {80, 8, 0, 0, 12, 0};
  if (clause.negated) {  // "not every", "not many" would negate the number
    weights[static_cast<size_t>(DeterminerKind::kEvery)] = 0;
    weights[static_cast<size_t>(DeterminerKind::kQuantity)] = 0;
  }
  const auto kind = static_cast<DeterminerKind>(draws_.Weighted(weights));
  return draws_.Pick(Determiners(), [&](const Determiner& determiner) { return determiner.kind == kind; });
}

NounPhrase ClauseSampler::DrawPhrase(uint32_t classes, Use use, const Clause& clause) {
  const bool may_be_pronoun = use != Use::kPlace && (classes & kPerson) != 0;
  if (may_be_pronoun && draws_.Percent(use == Use::kSubject ? 30 : 20)) return DrawPronoun(use, clause);
  // Most subjects are persons.
  if (use == Use::kSubject && (classes & kPerson) != 0 && draws_.Percent(75)) classes = kPerson;
  NounPhrase phrase;
  const auto fits = [&](const Noun& noun) {
    const bool used = &noun == clause.subject.noun || (clause.object && &noun == clause.object->noun) ||
                      (clause.indirect && &noun == clause.indirect->noun);
    return (noun.classes & classes) != 0 && !used;
  };
  phrase.noun = draws_.Pick(Nouns(), fits);
  phrase.plural = (phrase.noun->classes & kDrink) == 0 && draws_.Percent(use == Use::kPlace ? 10 : 28);
  phrase.determiner = DrawDeterminer(phrase, use, clause);
  const auto describes = [&](const Adjective& adjective) { return (adjective.classes & phrase.noun->classes) != 0; };
  if (draws_.Percent(use == Use::kPlace ? 12 : 24) && std::ranges::any_of(Adjectives(), describes)) {
    phrase.adjective = draws_.Pick(Adjectives(), describes);
  }
  if (use != Use::kPlace && draws_.Percent(9)) DrawRelative(phrase);
  return phrase;
}

void ClauseSampler::DrawRelative(NounPhrase& phrase) {
  if (relatives_left_ == 0) return;
  relatives_left_ = 0;
  const bool living = (phrase.noun->classes & kLivingMask) != 0;
  const bool has_verb = std::ranges::any_of(Verbs(), [&](const Verb& verb) {
    return verb.frame == Frame::kObject && (verb.objects & phrase.noun->classes) != 0;
  });
  ClauseWish wish = {.tenses = kAllTenses & ~TenseBit(Tense::kFuture),
                     .negated_percent = 8,
                     .time_percent = 12,
                     .frequency_percent = 12,
                     .place_percent = 8,
                     .head = phrase.noun};
  if (has_verb && (!living || draws_.Percent(40))) {
    wish.gap = Gap::kObject;
    wish.frames = FrameBit(Frame::kObject);
    wish.copula_percent = 0;
  } else {
    wish.gap = Gap::kSubject;
    if (!living) wish.copula_percent = 100;
  }
  phrase.relative = std::make_unique<Clause>(DrawClause(wish));
}

void ClauseSampler::DrawSubject(const ClauseWish& wish, Clause& clause) {
  if (wish.gap == Gap::kSubject) return;
  uint32_t classes = kPerson;
  if (clause.verb != nullptr) {
    classes = clause.verb->subjects;
  } else if (draws_.Percent(45)) {
    classes = kThing | kClothing | kReadable | kFood | kVehicle | kPlace | kOpenable | kSong | kDrink;
  }
  clause.subject = DrawPhrase(classes, Use::kSubject, clause);
}

void ClauseSampler::DrawCopula(const ClauseWish& wish, Clause& clause) {
  DrawSubject(wish, clause);
  const Noun* noun = wish.gap == Gap::kSubject && wish.head != nullptr ? wish.head : clause.subject.noun;
  const uint32_t classes = noun != nullptr ? noun->classes : static_cast<uint32_t>(kPerson);
  clause.complement = draws_.Pick(Adjectives(), [&](const Adjective& adjective) {
    return (adjective.classes & classes) != 0 && &adjective != clause.subject.adjective;
  });
  clause.very = !clause.negated && draws_.Percent(25) && clause.complement->english != "broken";
}

void ClauseSampler::DrawObjects(const ClauseWish& wish, Clause& clause) {
  if (clause.verb->frame == Frame::kTwoObjects) {
    // No relative clause between the two objects: "shows the queen whom he waits for a book" is ambiguous.
    const int relatives = std::exchange(relatives_left_, 0);
    clause.indirect = DrawPhrase(kPerson, Use::kObject, clause);
    relatives_left_ = relatives;
  }
  const bool takes_object = clause.verb->frame == Frame::kObject || clause.verb->frame == Frame::kTwoObjects;
  if (takes_object && wish.gap != Gap::kObject) clause.object = DrawPhrase(clause.verb->objects, Use::kObject, clause);
}

void ClauseSampler::DrawPlace(const ClauseWish& wish, Clause& clause) {
  const Frame frame = clause.verb->frame;
  if (frame == Frame::kDirection) {
    clause.place = DrawPhrase(kPlace, Use::kPlace, clause);
    return;
  }
  const bool optional = frame == Frame::kNothing || frame == Frame::kObject || frame == Frame::kTwoObjects;
  const bool required = frame == Frame::kPlace && wish.place_percent > 0;
  // An optional place after "nicht" would be negated instead of the verb.
  if (!required && !(optional && !clause.negated && draws_.Percent(wish.place_percent))) return;
  const bool inside = draws_.Percent(60) || clause.verb->base == "live";
  clause.preposition = draws_.Pick(PlacePrepositions(), [&](const PlacePreposition& preposition) {
    return (preposition.classes == kPlace) == inside;
  });
  clause.place = DrawPhrase(clause.preposition->classes, Use::kPlace, clause);
}

void ClauseSampler::DrawAdverbs(const ClauseWish& wish, Clause& clause) {
  // Avoids "The bridge is old today".
  const Noun* subject = wish.gap == Gap::kSubject ? wish.head : clause.subject.noun;
  if (clause.verb == nullptr && subject != nullptr && (subject->classes & kLivingMask) == 0) return;
  const auto fits = [&](const TimeAdverb& time) { return (time.tenses & TenseBit(clause.tense)) != 0; };
  if (draws_.Percent(wish.time_percent)) {
    clause.time = draws_.Pick(TimeAdverbs(), fits);
    clause.time_first = wish.time_first && draws_.Percent(50);
    return;
  }
  const bool allowed = clause.tense != Tense::kFuture && clause.tense != Tense::kModal && !clause.negated;
  if (allowed && draws_.Percent(wish.frequency_percent)) {
    clause.frequency = draws_.Pick(FrequencyAdverbs(), [](const FrequencyAdverb&) { return true; });
  }
}

Clause ClauseSampler::DrawClause(const ClauseWish& wish) {
  constexpr uint32_t kCopulaTenses = kPresent | kPast | TenseBit(Tense::kFuture);
  Clause clause;
  clause.gap = wish.gap;
  const bool copula = (wish.tenses & kCopulaTenses) != 0 && draws_.Percent(wish.copula_percent);
  clause.tense = DrawTense(copula ? wish.tenses & kCopulaTenses : wish.tenses);
  if (clause.tense == Tense::kModal) clause.modal = draws_.Pick(Modals(), [](const Modal&) { return true; });
  clause.negated = draws_.Percent(wish.negated_percent) && (clause.modal == nullptr || clause.modal->may_be_negated);
  if (copula) {
    DrawCopula(wish, clause);
  } else {
    clause.verb = DrawVerb(wish, clause.tense);
    DrawSubject(wish, clause);
    DrawObjects(wish, clause);
    DrawPlace(wish, clause);
  }
  DrawAdverbs(wish, clause);
  return clause;
}

}  // namespace hadal
