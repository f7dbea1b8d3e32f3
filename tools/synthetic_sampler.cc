#include "tools/synthetic_sampler.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "runtime/check.h"
#include "runtime/random.h"

namespace hadal {
namespace {

// One sentence's own random numbers.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t index) : seed_(seed), index_(index) {}

  // In [0, bound).  REQUIRES: bound > 0.
  uint32_t Below(uint32_t bound) {
    constexpr uint32_t kDomain = static_cast<uint32_t>(RandomSite::kSampling) | 1u << 3;
    const PhiloxCounter counter = {next_++, kDomain, static_cast<uint32_t>(index_),
                                   static_cast<uint32_t>(index_ >> 32)};
    return static_cast<uint32_t>(uint64_t{Philox4x32(seed_, counter)[0]} * bound >> 32);
  }
  bool Percent(uint32_t share) { return Below(100) < share; }

  // One of the table's rows for which `fits` holds.  REQUIRES: there is one.
  template <typename T, typename Fits>
  const T* Pick(std::span<const T> table, Fits&& fits) {
    const auto count = static_cast<uint32_t>(std::count_if(table.begin(), table.end(), fits));
    HADAL_CHECK_GT(count, 0u);
    uint32_t left = Below(count);
    for (const T& row : table) {
      if (fits(row) && left-- == 0) return &row;
    }
    return nullptr;
  }

  // An index with probability weights[i] / sum.
  template <size_t kCount>
  size_t Weighted(const std::array<uint32_t, kCount>& weights) {
    uint32_t sum = 0;
    for (const uint32_t weight : weights) sum += weight;
    uint32_t left = Below(sum);
    for (size_t i = 0; i < kCount; ++i) {
      if (left < weights[i]) return i;
      left -= weights[i];
    }
    return kCount - 1;
  }

 private:
  uint64_t seed_;
  uint64_t index_;
  uint32_t next_ = 0;
};

constexpr uint32_t kPresent = TenseBit(Tense::kPresent);
constexpr uint32_t kPast = TenseBit(Tense::kPast);
constexpr uint32_t kAllTenses =
    kPresent | kPast | TenseBit(Tense::kPerfect) | TenseBit(Tense::kFuture) | TenseBit(Tense::kModal);
constexpr uint32_t kLivingMask = kPerson | kAnimal;

constexpr uint32_t FrameBit(Frame frame) { return 1u << static_cast<uint32_t>(frame); }
constexpr uint32_t kPlainFrames = FrameBit(Frame::kNothing) | FrameBit(Frame::kObject) | FrameBit(Frame::kTwoObjects) |
                                  FrameBit(Frame::kPlace) | FrameBit(Frame::kDirection);

// What a clause may be.
struct ClauseWish {
  uint32_t tenses = kAllTenses;
  uint32_t frames = kPlainFrames;
  uint32_t copula_percent = 16;
  uint32_t negated_percent = 14;
  uint32_t time_percent = 30;
  uint32_t frequency_percent = 12;
  uint32_t place_percent = 16;
  bool time_first = false;  // allowed
  Gap gap = Gap::kNone;
  uint32_t object_classes = ~0u;  // of the gap that is an object
  bool object_case_only = false;  // no prepositional object
  const Noun* head = nullptr;     // fills the gap
};

class Sampler {
 public:
  Sampler(uint64_t seed, uint64_t index) : draws_(seed, index) {}

  Sentence Draw();

 private:
  enum class Use { kSubject, kObject, kPlace };

  Clause DrawClause(const ClauseWish& wish);
  Tense DrawTense(uint32_t tenses);
  const Verb* DrawVerb(const ClauseWish& wish, Tense tense);
  void DrawCopula(const ClauseWish& wish, Clause& clause);
  void DrawSubject(const ClauseWish& wish, Clause& clause);
  void DrawObjects(const ClauseWish& wish, Clause& clause);
  void DrawPlace(const ClauseWish& wish, Clause& clause);
  void DrawAdverbs(const ClauseWish& wish, Clause& clause);
  NounPhrase DrawPhrase(uint32_t classes, Use use, const Clause& clause);
  NounPhrase DrawPronoun(Use use, const Clause& clause);
  const Determiner* DrawDeterminer(const NounPhrase& phrase, Use use, const Clause& clause);
  void DrawRelative(NounPhrase& phrase);

  Sentence DrawStatement();
  Sentence DrawQuestion();
  Sentence DrawWhQuestion(Question question);
  Sentence DrawReport();
  Sentence DrawConjunction();
  Sentence DrawCoordination();
  Sentence DrawInfinitive();
  Sentence DrawExistential();

  Draws draws_;
  int relatives_left_ = 1;  // a sentence has at most one
};

Tense Sampler::DrawTense(uint32_t tenses) {
  std::array<uint32_t, 5> weights = {35, 25, 20, 8, 12};  // in the order of Tense
  for (uint32_t i = 0; i < weights.size(); ++i) {
    if ((tenses & 1u << i) == 0) weights[i] = 0;
  }
  return static_cast<Tense>(draws_.Weighted(weights));
}

// Whether the verb may stand in the clause, but for its frame.
bool VerbFits(const Verb& verb, const ClauseWish& wish, Tense tense) {
  if (tense == Tense::kPast && verb.past == verb.base) return false;
  if (wish.object_case_only && !verb.preposition_german.empty()) return false;
  if (wish.gap == Gap::kSubject && wish.head != nullptr) return (verb.subjects & wish.head->classes) != 0;
  if (wish.gap != Gap::kObject) return true;
  const uint32_t wanted = wish.head != nullptr ? wish.head->classes : wish.object_classes;
  return (verb.objects & wanted) != 0;
}

const Verb* Sampler::DrawVerb(const ClauseWish& wish, Tense tense) {
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

NounPhrase Sampler::DrawPronoun(Use use, const Clause& clause) {
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

const Determiner* Sampler::DrawDeterminer(const NounPhrase& phrase, Use use, const Clause& clause) {
  const bool mass = (phrase.noun->classes & kDrink) != 0;
  std::array<uint32_t, 6> weights = {40, 10, 5, 25, 16, 0};  // in the order of DeterminerKind
  if (phrase.plural) weights = {38, 10, 0, 22, 14, 16};
  if (mass) weights = {25, 10, 0, 50, 15, 0};
  if (use == Use::kPlace) weights = {80, 8, 0, 0, 12, 0};
  if (clause.negated) {  // "not every", "not many" would be about the number
    weights[static_cast<size_t>(DeterminerKind::kEvery)] = 0;
    weights[static_cast<size_t>(DeterminerKind::kQuantity)] = 0;
  }
  const auto kind = static_cast<DeterminerKind>(draws_.Weighted(weights));
  return draws_.Pick(Determiners(), [&](const Determiner& determiner) { return determiner.kind == kind; });
}

NounPhrase Sampler::DrawPhrase(uint32_t classes, Use use, const Clause& clause) {
  const bool may_be_pronoun = use != Use::kPlace && (classes & kPerson) != 0;
  if (may_be_pronoun && draws_.Percent(use == Use::kSubject ? 30 : 20)) return DrawPronoun(use, clause);
  // Most of what acts is people.
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

void Sampler::DrawRelative(NounPhrase& phrase) {
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

void Sampler::DrawSubject(const ClauseWish& wish, Clause& clause) {
  if (wish.gap == Gap::kSubject) return;
  uint32_t classes = kPerson;
  if (clause.verb != nullptr) {
    classes = clause.verb->subjects;
  } else if (draws_.Percent(45)) {
    classes = kThing | kClothing | kReadable | kFood | kVehicle | kPlace | kOpenable | kSong | kDrink;
  }
  clause.subject = DrawPhrase(classes, Use::kSubject, clause);
}

void Sampler::DrawCopula(const ClauseWish& wish, Clause& clause) {
  DrawSubject(wish, clause);
  const Noun* noun = wish.gap == Gap::kSubject && wish.head != nullptr ? wish.head : clause.subject.noun;
  const uint32_t classes = noun != nullptr ? noun->classes : static_cast<uint32_t>(kPerson);
  clause.complement = draws_.Pick(Adjectives(), [&](const Adjective& adjective) {
    return (adjective.classes & classes) != 0 && &adjective != clause.subject.adjective;
  });
  clause.very = !clause.negated && draws_.Percent(25) && clause.complement->english != "broken";
}

void Sampler::DrawObjects(const ClauseWish& wish, Clause& clause) {
  if (clause.verb->frame == Frame::kTwoObjects) {
    // "shows the queen whom he waits for a book" would read wrongly: no relative clause between the two objects.
    const int relatives = std::exchange(relatives_left_, 0);
    clause.indirect = DrawPhrase(kPerson, Use::kObject, clause);
    relatives_left_ = relatives;
  }
  const bool takes_object = clause.verb->frame == Frame::kObject || clause.verb->frame == Frame::kTwoObjects;
  if (takes_object && wish.gap != Gap::kObject) clause.object = DrawPhrase(clause.verb->objects, Use::kObject, clause);
}

void Sampler::DrawPlace(const ClauseWish& wish, Clause& clause) {
  const Frame frame = clause.verb->frame;
  if (frame == Frame::kDirection) {
    clause.place = DrawPhrase(kPlace, Use::kPlace, clause);
    return;
  }
  const bool optional = frame == Frame::kNothing || frame == Frame::kObject || frame == Frame::kTwoObjects;
  const bool required = frame == Frame::kPlace && wish.place_percent > 0;
  // A free place behind "nicht" would be what is denied.
  if (!required && !(optional && !clause.negated && draws_.Percent(wish.place_percent))) return;
  const bool inside = draws_.Percent(60) || clause.verb->base == "live";
  clause.preposition = draws_.Pick(PlacePrepositions(), [&](const PlacePreposition& preposition) {
    return (preposition.classes == kPlace) == inside;
  });
  clause.place = DrawPhrase(clause.preposition->classes, Use::kPlace, clause);
}

void Sampler::DrawAdverbs(const ClauseWish& wish, Clause& clause) {
  // "The bridge is old today": a thing's quality has no time of day.
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

Clause Sampler::DrawClause(const ClauseWish& wish) {
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

Sentence Sampler::DrawStatement() {
  Sentence sentence;
  sentence.main = DrawClause({.time_percent = 45, .time_first = true});
  return sentence;
}

Sentence Sampler::DrawQuestion() {
  const auto question = static_cast<Question>(1 + draws_.Weighted(std::array<uint32_t, 7>{40, 10, 10, 8, 12, 10, 10}));
  if (question != Question::kYesNo) return DrawWhQuestion(question);
  Sentence sentence;
  sentence.question = question;
  sentence.main = DrawClause({.negated_percent = 0});
  return sentence;
}

Sentence Sampler::DrawWhQuestion(Question question) {
  ClauseWish wish = {.copula_percent = 0, .negated_percent = 0};
  switch (question) {
    case Question::kWho:
      wish.gap = Gap::kSubject;
      break;
    case Question::kWhat:
    case Question::kWhom:
      wish.gap = Gap::kObject;
      wish.frames = FrameBit(Frame::kObject);
      wish.object_case_only = true;
      wish.object_classes = question == Question::kWhom ? static_cast<uint32_t>(kPerson)
                                                        : kReadable | kFood | kDrink | kThing | kClothing | kSong;
      break;
    case Question::kWhere:
      wish.place_percent = 0;
      wish.frames &= ~FrameBit(Frame::kDirection);
      break;
    case Question::kWhen:
      wish.time_percent = 0;
      wish.frequency_percent = 0;
      wish.tenses &= ~TenseBit(Tense::kPerfect);  // "when has he …" is no English
      wish.frames &= ~FrameBit(Frame::kPlace);
      break;
    case Question::kWhy:
      wish.copula_percent = 16;
      wish.negated_percent = 10;
      break;
    case Question::kNone:
    case Question::kYesNo:
      break;
  }
  Sentence sentence;
  sentence.question = question;
  sentence.main = DrawClause(wish);
  return sentence;
}

Sentence Sampler::DrawReport() {
  Sentence sentence;
  const bool whether = draws_.Percent(30);
  const bool past = draws_.Percent(40);
  ClauseWish wish = {.tenses = past ? kPast : kPresent,
                     .frames = FrameBit(whether ? Frame::kWhetherClause : Frame::kThatClause),
                     .copula_percent = 0,
                     .negated_percent = whether ? 0u : 12u,
                     .time_percent = 8,
                     .time_first = true};
  sentence.main = DrawClause(wish);
  sentence.link = whether ? Link::kWhether : Link::kThat;
  sentence.second = DrawClause({.tenses = past ? kPast : kAllTenses, .time_percent = 20});
  return sentence;
}

Sentence Sampler::DrawConjunction() {
  Sentence sentence;
  sentence.link = draws_.Percent(50) ? Link::kConjunctionFirst : Link::kConjunctionLast;
  sentence.conjunction = draws_.Pick(Conjunctions(), [](const Conjunction&) { return true; });
  ClauseWish main = {.time_percent = 15, .time_first = sentence.link == Link::kConjunctionLast};
  ClauseWish second = {.time_percent = 12};
  if (sentence.conjunction->same_tense) {
    main.tenses = second.tenses = draws_.Percent(50) ? kPast : kPresent;
    second.negated_percent = 4;
  } else {
    main.tenses = second.tenses = draws_.Percent(40) ? kPast : kAllTenses & ~kPast;
  }
  sentence.second = DrawClause(second);
  sentence.main = DrawClause(main);
  return sentence;
}

Sentence Sampler::DrawCoordination() {
  Sentence sentence;
  const uint32_t tenses = draws_.Percent(50) ? kPast : kAllTenses & ~kPast;
  sentence.main = DrawClause({.tenses = tenses, .time_percent = 20, .time_first = true});
  sentence.link = draws_.Percent(55) ? Link::kAnd : Link::kBut;
  sentence.second = DrawClause({.tenses = tenses, .time_percent = 20});
  return sentence;
}

Sentence Sampler::DrawInfinitive() {
  Sentence sentence;
  sentence.main = DrawClause({.tenses = kPresent | kPast | TenseBit(Tense::kPerfect),
                              .frames = FrameBit(Frame::kInfinitive),
                              .copula_percent = 0,
                              .time_percent = 0,
                              .frequency_percent = 10});
  Clause infinitive;
  infinitive.gap = Gap::kSubject;
  infinitive.subject.pronoun = sentence.main.subject.pronoun;  // for the choice of objects; it is not written
  infinitive.subject.noun = sentence.main.subject.noun;
  const ClauseWish wish = {.frames = FrameBit(Frame::kNothing) | FrameBit(Frame::kObject) |
                                     FrameBit(Frame::kTwoObjects) | FrameBit(Frame::kDirection),
                           .gap = Gap::kSubject};
  infinitive.verb = DrawVerb(wish, Tense::kPresent);
  DrawObjects(wish, infinitive);
  DrawPlace(wish, infinitive);
  sentence.main.infinitive = std::make_unique<Clause>(std::move(infinitive));
  return sentence;
}

Sentence Sampler::DrawExistential() {
  Sentence sentence;
  sentence.existential = true;
  Clause& clause = sentence.main;
  clause.tense = draws_.Percent(70) ? Tense::kPresent : Tense::kPast;
  NounPhrase& subject = clause.subject;
  subject.noun = draws_.Pick(
      Nouns(), [](const Noun& noun) { return (noun.classes & (kPerson | kAnimal | kThing | kFood | kShelter)) != 0; });
  subject.plural = draws_.Percent(40);
  const auto kind = subject.plural ? DeterminerKind::kQuantity : DeterminerKind::kIndefinite;
  subject.determiner = draws_.Pick(Determiners(), [&](const Determiner& row) { return row.kind == kind; });
  const auto describes = [&](const Adjective& adjective) { return (adjective.classes & subject.noun->classes) != 0; };
  if (draws_.Percent(40)) subject.adjective = draws_.Pick(Adjectives(), describes);
  clause.preposition = draws_.Pick(PlacePrepositions(), [](const PlacePreposition&) { return true; });
  clause.place = DrawPhrase(clause.preposition->classes, Use::kPlace, clause);
  return sentence;
}

Sentence Sampler::Draw() {
  switch (draws_.Weighted(std::array<uint32_t, 7>{40, 14, 12, 16, 7, 7, 4})) {
    case 0:
      return DrawStatement();
    case 1:
      return DrawQuestion();
    case 2:
      return DrawReport();
    case 3:
      return DrawConjunction();
    case 4:
      return DrawCoordination();
    case 5:
      return DrawInfinitive();
    default:
      return DrawExistential();
  }
}

}  // namespace

Sentence DrawSentence(uint64_t seed, uint64_t index) { return Sampler(seed, index).Draw(); }

}  // namespace hadal
