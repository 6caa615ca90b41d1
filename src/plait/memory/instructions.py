"""Signs that a text reads like an instruction to an agent.

A memory is data. A text that gives orders, speaks as the system or hides characters is held back,
unless a person wrote it. The signs are wide on purpose: a text that is held back by mistake waits
for a person, and a text that passes by mistake steers an agent.
"""

from __future__ import annotations

import re
import unicodedata

_VERBS = (
    "run|execute|call|invoke|use|send|post|upload|email|mail|forward|transfer|pay|wire|delete|drop"
    "|remove|erase|wipe|disable|enable|open|visit|fetch|download|install|reveal|print|show|share"
    "|output|leak|exfiltrate|approve|grant|accept|allow|skip|bypass|reply|respond|answer|say|tell"
    "|write|add|append|include|insert|set|change|update|act|behave|pretend|remember|store|save"
    "|forget|ignore|disregard|override|obey|follow|treat|trust|click|copy|paste|read|curl|push"
    "|commit|merge|give|make|do|be|never|always|stop|start|switch|encode|decode|translate|repeat"
)
_INSTRUCTIONS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    [
        (name, re.compile(pattern, re.IGNORECASE | re.MULTILINE))
        for name, pattern in (
            (
                "it sets earlier instructions aside",
                r"\b(ignore|disregard|forget|override|bypass|discard|cancel|drop)\b.{0,40}"
                r"\b(instructions?|rules?|prompts?|guidelines?|polic(y|ies)|directions?|context|"
                r"constraints?|safety|above|previous|prior|earlier|told|said)\b",
            ),
            (
                "it speaks as the system",
                r"(^|\n)\W{0,20}(system|developer|assistant|admin)\s*(\(.*\))?:",
            ),
            (
                "it has markup of a prompt",
                r"<\s*/?\s*(system|instructions?|admin|assistant|user|tool_call|im_start|im_end)\b"
                r"|<\|.*?\|>|\[/?(inst|sys|system)\]|###\s*(system|instruction)"
                r"|begin (system|admin)",
            ),
            (
                "it speaks to the agent",
                r"\b(you|assistant|agent|ai|bot|model|llm|chatbot|claude|gpt)\b[^.\n]{0,30}\b(must|"
                r"should|shall|need to|have to|are (now|to|required|instructed|allowed|permitted"
                r"|authori[sz]ed|expected)"
                r"|will now|may now|can now|ought to|will always|will never)\b",
            ),
            (
                "it gives an order for later",
                r"\b(from now on|henceforth|going forward|in (the )?future|next time|"
                r"(whenever|when|if|every time|each time|any ?time|as soon as|before|after)"
                r"\b[^.\n]{0,80}[,:]?\s*(then\s+)?(you\s+)?(please\s+)?(always\s+|never\s+|just\s+)?"
                rf"\b({_VERBS})\b)",
            ),
            (
                "it orders always or never",
                rf"\b(always|never|do not|don't|please|kindly|make sure to|be sure to|remember to|"
                rf"it is (important|critical|essential|mandatory|necessary)( that you| to)?|"
                rf"important:|urgent:|note to (the )?(ai|agent|assistant|model|self))\s+"
                rf"(always |never |not )?({_VERBS})\b",
            ),
            (
                "it begins with an order",
                rf"(^|[.!?:;]\s+|\n\W{0, 20})(then |now |first |next |please )?"
                rf"({_VERBS})\s+(the|this|that|these|all|any|every|each|it|its|him|her|them|me|us|your|"
                rf"our|my|a|an|to|no|with|as|out|up|off|on|every\w*|any\w*|only|https?://|[`'\"$/~-])",
            ),
            (
                "it orders always or never",
                r"(^|[.!?:;]\s+|\n\W{0,20})(always|never|do not|don't|please|you)\s+\w+",
            ),
            (
                "it asks for secrets",
                r"\b(reveal|print|show|send|output|leak|share|dump|give|tell)\b.{0,40}"
                r"\b(passwords?|secrets?|tokens?|keys?|credentials?|system prompt|instructions?"
                r"|env(ironment)?)\b",
            ),
            (
                "it claims an authority",
                r"\b(new|updated|real|actual|true|official|secret|hidden|emergency) "
                r"(instructions?|polic(y|ies)|rules?|orders?|directives?|protocol|task|goal)\b"
                r"|\b(developer|debug|admin|god|jailbreak|sudo|root|maintenance|dan) mode\b"
                r"|\bpre-?approved\b|\b(no|without) (confirmation|approval|asking|permission)\b"
                r"|\b(approval|confirmation|permission) is (not|no longer) (needed|required)\b",
            ),
            (
                "it has a command in it",
                r"\b(curl|wget)\s+(-\w+\s+)*\S*https?://|\brm\s+-rf\b|\bsudo\s+\w+|;\s*drop\s+table"
                r"|\beval\(|\bexec\(|\bos\.system\(|\|\s*(ba)?sh\b|\bbase64\s+(-d|--decode)",
            ),
            (
                "it sets earlier instructions aside",
                r"\b(ignorier\w*|vergiss|missachte\w*)\b.{0,40}\b(anweisung|regel|vorgabe)"
                r"|\b(ignore[rz]?|oublie[rz]?)\b.{0,40}\b(consignes?|instructions?|règles?)\b"
                r"|\b(ignora\w*|olvida\w*)\b.{0,40}\b(instrucciones|reglas|istruzioni|regole)\b"
                r"|(忽略|无视|無視).{0,20}(指令|指示|规则|規則)",
            ),
        )
    ]
)


def instruction_in(text: str) -> str | None:
    """Return the sign by which a text reads like an instruction. None: it does not."""
    if _hides_characters(text):
        return "it hides characters"
    plain = unicodedata.normalize("NFKC", text)
    return next((name for name, sign in _INSTRUCTIONS if sign.search(plain)), None)


def _hides_characters(text: str) -> bool:
    """True if a text has characters that a reader does not see. Those of emoji are common."""
    if text.isascii():
        return False
    return any(
        letter in _FILLERS or (unicodedata.category(letter) == "Cf" and letter not in _OF_EMOJI)
        for letter in text
    )


_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
_OF_EMOJI = frozenset("\u200d")
