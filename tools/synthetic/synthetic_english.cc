#include "tools/synthetic/synthetic_english.h"

#include "tools/synthetic/synthetic_words.h"

namespace hadal {
namespace {

// Person and number that the verb agrees with.
struct Agreement {
  int person = 3;
  bool plural = false;

  bool third_singular() const { return person == 3 && !plural; }
};

Agreement AgreementOf(const NounPhrase& phrase) { return {phrase.person(), phrase.is_plural()}; }

Words WriteClause(const Clause& clause, const Agreement& agreement);

// "a" before a consonant letter, "an" before a vowel, which is right for every word in the lexicon.
std::string_view IndefiniteArticle(std::string_view next) { return next.find_first_of("aeiou") == 0 ? "an" : "a"; }

Words WriteRelative(const NounPhrase& head) {
  const Clause& clause = *head.relative;
  Words words;
  if (clause.gap == Gap::kSubject) {
    words.Add(head.is_person() ? "who" : "that");
    return words.Add(WriteClause(clause, AgreementOf(head)));
  }
  words.Add(head.is_person() ? "whom" : "that");
  return words.Add(WriteClause(clause, AgreementOf(clause.subject)));
}

Words WritePhrase(const NounPhrase& phrase, bool as_object) {
  if (phrase.pronoun != nullptr) {
    return Words().Add(as_object ? phrase.pronoun->english_object : phrase.pronoun->english);
  }
  Words rest;
  if (phrase.adjective != nullptr) rest.Add(phrase.adjective->english);
  rest.Add(phrase.plural ? phrase.noun->english_plural : phrase.noun->english);
  Words words;
  if (phrase.plural) {
    words.Add(phrase.determiner->english_plural);
  } else if (phrase.determiner->kind != DeterminerKind::kIndefinite) {
    words.Add(phrase.determiner->english);
  } else if ((phrase.noun->classes & kDrink) == 0) {
    words.Add(IndefiniteArticle(rest.front()));
  }
  words.Add(rest);
  if (phrase.relative != nullptr) words.Add(WriteRelative(phrase));
  return words;
}

std::string_view Be(Tense tense, const Agreement& agreement) {
  const bool plural = agreement.plural || agreement.person == 2;
  if (tense == Tense::kPast) return plural ? "were" : "was";
  if (plural) return "are";
  return agreement.person == 1 ? "am" : "is";
}

std::string_view Do(Tense tense, const Agreement& agreement) {
  if (tense == Tense::kPast) return "did";
  return agreement.third_singular() ? "does" : "do";
}

// The verb's parts. If the auxiliary is empty, `main` is finite.
struct VerbGroup {
  std::string_view auxiliary;
  Words main;
};

VerbGroup CopulaGroup(const Clause& clause, const Agreement& agreement) {
  if (clause.tense == Tense::kFuture) return {"will", Words().Add("be")};
  return {Be(clause.tense, agreement), {}};
}

// Present and past of a verb, or of "want to".
VerbGroup SimpleGroup(const Clause& clause, const Agreement& agreement, bool support) {
  const bool wants = clause.tense == Tense::kModal;
  VerbGroup group;
  if (support) {
    group.auxiliary = Do(clause.tense, agreement);
    group.main.Add(wants ? "want" : clause.verb->base);
  } else if (wants) {
    group.main.Add(agreement.third_singular() ? "wants" : "want");
  } else if (clause.tense == Tense::kPast) {
    group.main.Add(clause.verb->past);
  } else {
    group.main.Add(agreement.third_singular() ? clause.verb->third : clause.verb->base);
  }
  if (wants) group.main.Add("to").Add(clause.verb->base);
  return group;
}

VerbGroup GroupOf(const Clause& clause, const Agreement& agreement, bool inverted) {
  if (clause.verb == nullptr) return CopulaGroup(clause, agreement);
  switch (clause.tense) {
    case Tense::kPerfect:
      return {agreement.third_singular() ? "has" : "have", Words().Add(clause.verb->participle)};
    case Tense::kFuture:
      return {"will", Words().Add(clause.verb->base)};
    case Tense::kModal:
      if (!clause.modal->is_verb) return {clause.modal->english, Words().Add(clause.verb->base)};
      break;
    case Tense::kPresent:
    case Tense::kPast:
      break;
  }
  return SimpleGroup(clause, agreement, clause.negated || inverted);
}

// Everything after the verb: particle, objects, place, infinitive, time.
Words WriteRest(const Clause& clause) {
  Words words;
  if (clause.verb == nullptr) {
    if (clause.very) words.Add("very");
    words.Add(clause.complement->english);
  } else {
    const bool pronoun = clause.object && clause.object->pronoun != nullptr;
    if (!pronoun) words.Add(clause.verb->particle);
    words.Add(clause.verb->preposition);
    if (clause.indirect) words.Add(WritePhrase(*clause.indirect, true));
    if (clause.object) words.Add(WritePhrase(*clause.object, true));
    if (pronoun) words.Add(clause.verb->particle);
  }
  if (clause.place) {
    words.Add(clause.preposition != nullptr ? clause.preposition->english : "into");
    words.Add(WritePhrase(*clause.place, true));
  }
  if (clause.infinitive != nullptr) {
    words.Add("to").Add(clause.infinitive->verb->base).Add(WriteRest(*clause.infinitive));
  }
  if (clause.time != nullptr && !clause.time_first) words.Add(clause.time->english);
  return words;
}

// The clause from the auxiliary on; without the subject if `inverted`, because it has already been written.
Words WritePredicate(const Clause& clause, const VerbGroup& group, bool inverted) {
  Words words;
  const bool joined = clause.negated && group.auxiliary == "can";
  if (!inverted) words.Add(joined ? "cannot" : group.auxiliary);
  if (clause.negated && !joined) words.Add("not");
  if (clause.frequency != nullptr) words.Add(clause.frequency->english);
  return words.Add(group.main).Add(WriteRest(clause));
}

Words WriteClause(const Clause& clause, const Agreement& agreement) {
  Words words;
  if (clause.time != nullptr && clause.time_first) words.Add(clause.time->english);
  if (clause.gap != Gap::kSubject) words.Add(WritePhrase(clause.subject, false));
  return words.Add(WritePredicate(clause, GroupOf(clause, agreement, false), false));
}

Words WriteClause(const Clause& clause) { return WriteClause(clause, AgreementOf(clause.subject)); }

Words WriteInverted(const Clause& clause) {
  const VerbGroup group = GroupOf(clause, AgreementOf(clause.subject), true);
  return Words().Add(group.auxiliary).Add(WritePhrase(clause.subject, false)).Add(WritePredicate(clause, group, true));
}

std::string_view QuestionWord(Question question) {
  switch (question) {
    case Question::kWho:
      return "who";
    case Question::kWhat:
      return "what";
    case Question::kWhom:
      return "whom";
    case Question::kWhere:
      return "where";
    case Question::kWhen:
      return "when";
    case Question::kWhy:
      return "why";
    case Question::kNone:
    case Question::kYesNo:
      break;
  }
  return "";
}

Words WriteMain(const Sentence& sentence) {
  const Clause& main = sentence.main;
  if (sentence.existential) {
    Words words;
    words.Add("there").Add(Be(main.tense, AgreementOf(main.subject))).Add(WritePhrase(main.subject, true));
    return words.Add(main.preposition->english).Add(WritePhrase(*main.place, true));
  }
  if (sentence.question == Question::kNone) return WriteClause(main);
  const Words clause = main.gap == Gap::kSubject ? WriteClause(main, Agreement()) : WriteInverted(main);
  return Words().Add(QuestionWord(sentence.question)).Add(clause);
}

}  // namespace

std::string WriteEnglish(const Sentence& sentence) {
  const Words main = WriteMain(sentence);
  Words words;
  switch (sentence.link) {
    case Link::kNone:
      words = main;
      break;
    case Link::kThat:
      words.Add(main).Add("that").Add(WriteClause(*sentence.second));
      break;
    case Link::kWhether:
      words.Add(main).Add("whether").Add(WriteClause(*sentence.second));
      break;
    case Link::kConjunctionFirst:
      words.Add(sentence.conjunction->english).Add(WriteClause(*sentence.second)).Comma().Add(main);
      break;
    case Link::kConjunctionLast:
      words.Add(main).Add(sentence.conjunction->english).Add(WriteClause(*sentence.second));
      break;
    case Link::kAnd:
      words.Add(main).Add("and").Add(WriteClause(*sentence.second));
      break;
    case Link::kBut:
      words.Add(main).Comma().Add("but").Add(WriteClause(*sentence.second));
      break;
  }
  return words.Sentence(sentence.question == Question::kNone ? '.' : '?');
}

}  // namespace hadal
