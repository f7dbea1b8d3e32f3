#include "tools/synthetic/synthetic_german.h"

#include "tools/synthetic/synthetic_declension.h"
#include "tools/synthetic/synthetic_words.h"

namespace hadal {
namespace {

struct Agreement {
  int person = 3;
  bool plural = false;
};

Agreement AgreementOf(const NounPhrase& phrase) { return {phrase.person(), phrase.is_plural()}; }

// Forms of one tense: ich, du, er, and the one of wir and sie.
struct Conjugation {
  std::string_view first, second, third, plural;

  std::string_view For(const Agreement& agreement) const {
    if (agreement.plural) return plural;
    return agreement.person == 1 ? first : agreement.person == 2 ? second : third;
  }
};

constexpr Conjugation kHaben = {"habe", "hast", "hat", "haben"};
constexpr Conjugation kSein = {"bin", "bist", "ist", "sind"};
constexpr Conjugation kWar = {"war", "warst", "war", "waren"};
constexpr Conjugation kWerden = {"werde", "wirst", "wird", "werden"};

// The verb's parts. Main clause: finite … rest. Subordinate clause: … last.
struct VerbGroup {
  std::string finite;
  std::string rest;
  std::string last;
};

// finite + an infinitive or participle at the end.
VerbGroup Bracket(std::string_view finite, const std::string& rest) {
  return {std::string(finite), rest, rest.empty() ? std::string(finite) : rest + " " + std::string(finite)};
}

VerbGroup CopulaGroup(const Clause& clause, const Agreement& agreement) {
  if (clause.tense == Tense::kFuture) return Bracket(kWerden.For(agreement), "sein");
  return Bracket((clause.tense == Tense::kPast ? kWar : kSein).For(agreement), "");
}

// The sampler never draws the past tense of du.
std::string PastForm(const Verb& verb, const Agreement& agreement) {
  std::string form(verb.past_german);
  if (agreement.plural) form.append(form.ends_with('e') ? "n" : "en");
  return form;
}

VerbGroup GroupOf(const Clause& clause, const Agreement& agreement) {
  if (clause.verb == nullptr) return CopulaGroup(clause, agreement);
  const Verb& verb = *clause.verb;
  const std::string prefix(verb.prefix);
  const std::string infinitive = prefix + std::string(verb.infinitive);
  std::string finite;
  switch (clause.tense) {
    case Tense::kPerfect:
      return Bracket((verb.with_sein ? kSein : kHaben).For(agreement), std::string(verb.participle_german));
    case Tense::kFuture:
      return Bracket(kWerden.For(agreement), infinitive);
    case Tense::kModal: {
      const Modal& modal = *clause.modal;
      return Bracket(Conjugation{modal.first, modal.second, modal.first, modal.plural}.For(agreement), infinitive);
    }
    case Tense::kPresent:
      finite = Conjugation{verb.first, verb.second, verb.third_german, verb.infinitive}.For(agreement);
      break;
    case Tense::kPast:
      finite = PastForm(verb, agreement);
      break;
  }
  return {finite, prefix, prefix + finite};
}

Words WriteSubordinate(const Clause& clause, const Agreement& agreement);

// ", der … ," with the pronoun in the case that the clause gives it.
Words WriteRelative(const NounPhrase& head) {
  const Clause& clause = *head.relative;
  Form form = {head.noun->gender, head.plural, Case::kNominative};
  Words words;
  words.Comma();
  if (clause.gap == Gap::kSubject) {
    words.Add(RelativePronoun(form)).Add(WriteSubordinate(clause, AgreementOf(head)));
    return words;
  }
  form.grammatical_case = clause.verb->object_case;
  words.Add(clause.verb->preposition_german).Add(RelativePronoun(form));
  return words.Add(WriteSubordinate(clause, AgreementOf(clause.subject)));
}

std::string_view PronounForm(const Pronoun& pronoun, Case grammatical_case) {
  switch (grammatical_case) {
    case Case::kNominative:
      return pronoun.german;
    case Case::kAccusative:
      return pronoun.accusative;
    case Case::kDative:
      break;
  }
  return pronoun.dative;
}

// Contracts preposition and article: "in dem" = "im".
std::string_view Contract(std::string_view preposition, std::string_view article) {
  if (preposition == "in" && article == "dem") return "im";
  if (preposition == "in" && article == "das") return "ins";
  if (preposition == "von" && article == "dem") return "vom";
  return "";
}

// A phrase, after `preposition` if that is not empty.
Words WritePhrase(const NounPhrase& phrase, Case grammatical_case, std::string_view preposition = "",
                  bool negative = false) {
  Words words;
  if (phrase.pronoun != nullptr) return words.Add(preposition).Add(PronounForm(*phrase.pronoun, grammatical_case));
  const DeclinedPhrase declined = Decline(phrase, grammatical_case, negative);
  // "von dem Mann, der …": no contraction before a relative clause.
  const bool article = phrase.determiner->kind == DeterminerKind::kDefinite && phrase.relative == nullptr;
  const std::string_view contracted = article ? Contract(preposition, declined.determiner) : "";
  if (contracted.empty()) {
    words.Add(preposition).Add(declined.determiner);
  } else {
    words.Add(contracted);
  }
  words.Add(declined.adjective).Add(declined.noun);
  if (phrase.relative != nullptr) words.Add(WriteRelative(phrase)).Comma();
  return words;
}

bool IsPronoun(const std::optional<NounPhrase>& phrase) { return phrase && phrase->pronoun != nullptr; }

// Whether the object is negated by kein, so that the clause has no nicht.
bool HasNegativeObject(const Clause& clause) {
  return clause.negated && clause.object && clause.object->noun != nullptr && clause.verb->preposition_german.empty() &&
         clause.object->determiner->kind == DeterminerKind::kIndefinite;
}

Words WritePlace(const Clause& clause) {
  if (!clause.place) return {};
  if (clause.preposition == nullptr) return WritePhrase(*clause.place, Case::kAccusative, "in");
  return WritePhrase(*clause.place, Case::kDative, clause.preposition->german);
}

// Everything between the finite verb and the rest of the verb, without the subject.
Words WriteMiddle(const Clause& clause) {
  const bool prepositional = clause.verb != nullptr && !clause.verb->preposition_german.empty();
  const Case object_case = clause.verb != nullptr ? clause.verb->object_case : Case::kAccusative;
  const bool negative_object = HasNegativeObject(clause);
  Words words;
  if (IsPronoun(clause.object) && !prepositional) words.Add(WritePhrase(*clause.object, object_case));
  if (IsPronoun(clause.indirect)) words.Add(WritePhrase(*clause.indirect, Case::kDative));
  if (clause.time != nullptr && !clause.time_first) words.Add(clause.time->german);
  if (clause.frequency != nullptr) words.Add(clause.frequency->german);
  if (clause.indirect && !IsPronoun(clause.indirect)) words.Add(WritePhrase(*clause.indirect, Case::kDative));
  if (clause.object && !IsPronoun(clause.object) && !prepositional) {
    words.Add(WritePhrase(*clause.object, object_case, "", negative_object));
  }
  if (clause.negated && !negative_object) words.Add("nicht");
  if (clause.object && prepositional) {
    words.Add(WritePhrase(*clause.object, object_case, clause.verb->preposition_german));
  }
  words.Add(WritePlace(clause));
  if (clause.very) words.Add("sehr");
  if (clause.complement != nullptr) words.Add(clause.complement->german);
  return words;
}

// ", das Buch zu lesen": zu is placed between a separable prefix and its verb.
Words WriteInfinitive(const Clause& clause) {
  const Verb& verb = *clause.verb;
  Words words = WriteMiddle(clause);
  if (verb.prefix.empty()) return words.Add("zu").Add(verb.infinitive);
  return words.Add(std::string(verb.prefix).append("zu").append(verb.infinitive));
}

Words WriteTail(const Clause& clause) {
  Words words;
  if (clause.infinitive != nullptr) words.Comma().Add(WriteInfinitive(*clause.infinitive)).Comma();
  return words;
}

// After the conjunction or relative pronoun: verb last.
Words WriteSubordinate(const Clause& clause, const Agreement& agreement) {
  Words words;
  if (clause.gap != Gap::kSubject) words.Add(WritePhrase(clause.subject, Case::kNominative));
  return words.Add(WriteMiddle(clause)).Add(GroupOf(clause, agreement).last).Add(WriteTail(clause));
}

Words WriteSubordinate(const Clause& clause) { return WriteSubordinate(clause, AgreementOf(clause.subject)); }

// Finite verb, subject, rest: a yes-no question, or the part after a word in first position.
Words WriteVerbFirst(const Clause& clause, bool with_subject, const Agreement& agreement) {
  const VerbGroup group = GroupOf(clause, agreement);
  Words words;
  words.Add(group.finite);
  if (with_subject) words.Add(WritePhrase(clause.subject, Case::kNominative));
  return words.Add(WriteMiddle(clause)).Add(group.rest).Add(WriteTail(clause));
}

// Verb second.
Words WriteMain(const Clause& clause) {
  const Agreement agreement = AgreementOf(clause.subject);
  Words words;
  if (clause.time != nullptr && clause.time_first) {
    return words.Add(clause.time->german).Add(WriteVerbFirst(clause, true, agreement));
  }
  words.Add(WritePhrase(clause.subject, Case::kNominative));
  return words.Add(WriteVerbFirst(clause, false, agreement));
}

std::string_view QuestionWord(const Sentence& sentence) {
  switch (sentence.question) {
    case Question::kWho:
      return "wer";
    case Question::kWhat:
      return "was";
    case Question::kWhom:
      return sentence.main.verb->object_case == Case::kDative ? "wem" : "wen";
    case Question::kWhere:
      return "wo";
    case Question::kWhen:
      return "wann";
    case Question::kWhy:
      return "warum";
    case Question::kNone:
    case Question::kYesNo:
      break;
  }
  return "";
}

Words WriteExistential(const Clause& clause) {
  Words words;
  words.Add("es").Add(clause.tense == Tense::kPast ? "gab" : "gibt");
  return words.Add(WritePhrase(clause.subject, Case::kAccusative)).Add(WritePlace(clause));
}

Words WriteFirst(const Sentence& sentence) {
  const Clause& main = sentence.main;
  if (sentence.existential) return WriteExistential(main);
  if (sentence.question == Question::kNone) return WriteMain(main);
  const bool has_subject = main.gap != Gap::kSubject;
  const Agreement agreement = has_subject ? AgreementOf(main.subject) : Agreement();
  return Words().Add(QuestionWord(sentence)).Add(WriteVerbFirst(main, has_subject, agreement));
}

}  // namespace

std::string WriteGerman(const Sentence& sentence) {
  Words words;
  if (sentence.link == Link::kConjunctionFirst) {
    const bool past = sentence.second->tense == Tense::kPast;
    words.Add(past ? sentence.conjunction->german_past : sentence.conjunction->german);
    words.Add(WriteSubordinate(*sentence.second)).Comma();
    words.Add(WriteVerbFirst(sentence.main, true, AgreementOf(sentence.main.subject)));
    return words.Sentence('.');
  }
  words.Add(WriteFirst(sentence));
  switch (sentence.link) {
    case Link::kNone:
    case Link::kConjunctionFirst:
      break;
    case Link::kThat:
      words.Comma().Add("dass").Add(WriteSubordinate(*sentence.second));
      break;
    case Link::kWhether:
      words.Comma().Add("ob").Add(WriteSubordinate(*sentence.second));
      break;
    case Link::kConjunctionLast: {
      const bool past = sentence.second->tense == Tense::kPast;
      words.Comma().Add(past ? sentence.conjunction->german_past : sentence.conjunction->german);
      words.Add(WriteSubordinate(*sentence.second));
      break;
    }
    case Link::kAnd:
      words.Add("und").Add(WriteMain(*sentence.second));
      break;
    case Link::kBut:
      words.Comma().Add("aber").Add(WriteMain(*sentence.second));
      break;
  }
  return words.Sentence(sentence.question == Question::kNone ? '.' : '?');
}

}  // namespace hadal
