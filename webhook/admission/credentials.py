"""What looks like a credential in a text, and the text without it.

A text is read once, word by word. Words are disjoint and each is looked at by means whose cost is linear in its length,
so the cost of a whole text is linear too, whatever an attacker writes; tests hold that. A secret that looks like
nothing cannot be recognized here: `webhook.admission.redaction` knows the places where those are.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from functools import lru_cache
from typing import Final

from webhook.text import visible

HIDDEN: Final = "<redacted>"

# What was made of a text of so many characters is remembered.
SHORT: Final = 512
# Of a word of so many characters is remembered whether it may be a credential: the name of a kind is not.
_MAX_WORD: Final = 64
# A longer text with anything suspicious in it is hidden as a whole.
MAX_TEXT: Final = 64 * 1024

# A text without any of these, in lower case, and without a long word holds nothing that is looked for here.
_SIGNS: Final = (
    *("://", "?", "=", "-----begin", "eyj", "bearer", "basic ", "digest ", "negotiate ", "aws4-", " aaaa", "$"),
    *("#cloud-", "ignition", "ssh_auth", "useraccounts", "autologon", "passw", "passphrase", "pwd", "rootpw"),
    *("token", "secret", "credential", "authorization", "cookie", "signature", "akia", "asia"),
)
# Likewise, of those with a common word, for which one looks first.
_KEY_SIGNS: Final = (
    *("apikey", "api_key", "api-key", "accesskey", "access_key", "access-key"),
    *("privatekey", "private_key", "private-key", "presharedkey", "key-data"),
)
# The end of a name that announces a secret, without a plural's s.
_ANNOUNCES: Final = (
    *("password", "passwd", "passphrase", "pwd", "rootpw", "token", "apikey", "api_key", "api-key", "accesskey"),
    *("access_key", "access-key", "secretkey", "secret_key", "secret-key", "privatekey", "private_key", "private-key"),
    *("presharedkey", "key-data", "clientsecret", "client_secret", "client-secret", "credential", "authorization"),
    *("cookie", "signature"),
)
_SCHEMES: Final = ("bearer", "basic", "digest", "negotiate", "aws4-hmac-sha256")
_KEY: Final = re.compile(r"[A-Za-z0-9_.-]+\Z")
# Vendors' tokens that could be, or end, a name as Kubernetes has them.
_TOKENS: Final = r"(?:glpat-|xox|ya29\.|sk-live|sk-test|sk-proj|sk-ant)"
# A name as Kubernetes has them: nothing to look at.
_NAME: Final = re.compile(rf"(?=[a-z0-9.-]{{0,253}}\Z)(?!.*{_TOKENS})[a-z0-9.-]*")
# The same, so short that no search for it has to be counted.
is_short_name: Final = re.compile(rf"(?=[a-z0-9.-]{{0,63}}\Z)(?!.*{_TOKENS})[a-z0-9.-]*").fullmatch
_LONG: Final = re.compile(r"[A-Za-z0-9+/_=-]{20}")
# All that `_SHAPE` and `_BASE64` can match, but for what has a sign.
_LONG_WORD: Final = re.compile(r"[A-Za-z0-9+/_=.~-]{19,}+")
_WORD: Final = re.compile(r"[^\s\"'`<>,;{}()\[\]|\\]++")
_ASSIGNS: Final = re.compile(r"[\"'`\\ \t]{0,8}[:=]")
_SPACE: Final = re.compile(r"[\s\"'`\\]*+")
_UNBROKEN: Final = re.compile(r"[^\s\"<>\\]*+")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{20,}+={0,2}")
_PORT: Final = re.compile(r":[0-9]{0,5}")
_COMPRESSED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh")

# Whole files that log in somewhere, or hold what does: cloud-init, Ignition, unattend.xml, keys, password hashes.
_FILE: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY"
    r"|\b(?:ssh-[a-z0-9]{1,20}|ecdsa-sha2-[a-z0-9]{1,20}|sk-[a-z0-9@.-]{1,60}) AAAA"
    r"|\$(?:1|2[aby]|5|6|7|y|gy|argon2id?)\$[^\s$]{1,128}+\$"
    r"|#cloud-(?:config|boothook)\b|\bssh_authorized_keys\b|\bchpasswd\b"
    r"|<(?:\w{1,32}+:)?(?:AdministratorPassword|UserAccounts|AutoLogon)\b"
    r"|\"ignition\\?\"\s*+:",
    re.IGNORECASE,
)
# A word of its own that logs in: JSON web tokens, and what vendors' tokens begin with.
_SHAPE: Final = re.compile(
    r"(?<![\w-])(?:"
    r"eyJ[\w-]{8,}+\.[\w-]{2,}+\.[\w-]*+"
    r"|(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|sk-(?:live|test|proj|ant)|[rs]k_live_|npm_|hf_|dop_v1_|AIza|ya29\."
    r"|SG\.|sha256~)[\w-]{16,}+"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"
    r")",
    re.ASCII,
)


def scrub_prose(text: str) -> str:
    """A sentence of this program, which may quote what users wrote, without what looks like a credential.

    From a word that announces a secret on, the rest of the text is hidden.
    """
    if _NAME.fullmatch(text):
        return text
    if len(text) > MAX_TEXT:
        return HIDDEN if _is_suspicious(text) else text
    return _Scrubber(text, prose=True).scrub() if may_need_scrubbing(text) else text


def sanitize(text: str) -> str:
    """A sentence as everybody may read it: without credentials, on one line, with nothing in it that is not seen."""
    return sanitize_short(text) if len(text) <= SHORT else visible(scrub_prose(text))


@lru_cache(maxsize=1024)
def sanitize_short(text: str) -> str:
    """A text of at most `SHORT` characters without credentials and hidden characters; the latest results are kept."""
    return visible(scrub_prose(text))


@lru_cache(maxsize=1024)
def scrub_short(text: str) -> str:
    """A text of at most `SHORT` characters without credentials, as `scrub_prose` returns it; the latest are kept."""
    return scrub_prose(text)


def scrub(text: str) -> str:
    """A value of an object without what looks like a credential; `HIDDEN` alone where the whole does."""
    if _NAME.fullmatch(text) or not _is_suspicious(text):
        return text
    return _Scrubber(text, prose=False).scrub() if len(text) <= MAX_TEXT else HIDDEN


def is_secret_flag(text: str) -> bool:
    """Whether it is a command line's option whose value, the next word, is a secret: ``--password``."""
    return text.startswith("-") and "=" not in text and _announces(text)


def _is_suspicious(text: str) -> bool:
    return _has_sign(text) or _LONG.search(text) is not None


def may_need_scrubbing(text: str) -> bool:
    """As `_is_suspicious`, but a long word counts only if it is a credential by itself.

    A sentence nearly always has a long word: the name of a kind.
    """
    if _has_sign(text):
        return True
    return any(len(word) > _MAX_WORD or _may_be_credential(word) for word in _LONG_WORD.findall(text))


def _has_sign(text: str) -> bool:
    lower = text.lower()
    # A loop, since a generator takes a call for each sign, and most texts have none.
    for sign in _SIGNS:
        if sign in lower:
            return True
    return "key" in lower and any(sign in lower for sign in _KEY_SIGNS)


def _announces(name: str) -> bool:
    return name.lower().removesuffix("s").endswith(_ANNOUNCES)


class _Scrubber:
    """One text, from its first word to its last.

    Args:
        prose: a sentence that quotes, not a value: its own words count for less.
        depth: how deep base64 may be nested in base64.
    """

    def __init__(self, text: str, *, prose: bool, depth: int = 0) -> None:
        self._text: Final = text
        self._prose: Final = prose
        self._depth: Final = depth
        self._shown: Final[list[str]] = []
        self._done = 0

    def scrub(self) -> str:
        text = self._text
        file = _FILE.search(text)
        if not self._prose and (file or _is_encoded("".join(text.split()), self._depth)):
            return HIDDEN
        end = file.start() if file else len(text)
        position = 0
        while position < end and (word := _WORD.search(text, position, end)):
            position = self._look(word.start(), word.end())
        if file:
            self._hide(max(self._done, file.start()), len(text))
        return "".join((*self._shown, text[self._done :]))

    def _look(self, start: int, end: int) -> int:
        """Look at the word between two places; where to go on."""
        text = self._text
        word = text[start:end]
        if (secret := self._find_announced_secret(word, start, end)) is not None:
            return self._hide(secret, len(text))
        if "://" in word:
            return self._url(start)
        if "?" in word and "=" in word:
            # An address without its scheme: what follows the question mark may be a signature.
            return self._hide(start + word.index("?") + 1, _end(_UNBROKEN, text, start))
        if len(word) >= 20:
            self._hide_shapes(start, end)
        return end

    def _find_announced_secret(self, word: str, start: int, end: int) -> int | None:
        """Where a secret begins that the word announces; None where it announces none."""
        text = self._text
        for mark in ("=", ":"):
            name, separator, _ = word.partition(mark)
            if separator and self._is_key(name, mark):
                return _end(_SPACE, text, start + len(name) + 1)
        if is_secret_flag(word):
            return _end(_SPACE, text, end)
        after = _ASSIGNS.match(text, end)
        if after and self._is_key(word, after[0][-1]):
            return _end(_SPACE, text, after.end())
        scheme = word.rpartition(":")[2]
        if scheme.lower() in _SCHEMES and not (self._prose and scheme.islower()):
            begin = _end(_SPACE, text, end)
            following = _WORD.match(text, begin)
            return begin if following and len(following[0]) >= 6 else None
        return None

    def _is_key(self, name: str, mark: str) -> bool:
        if not _KEY.match(name) or not (_announces(name) or (mark == "=" and name.lower().endswith("secret"))):
            return False
        # A field's path that ends in .password: is what a denial begins with.
        return not (self._prose and mark == ":" and "." in name)

    def _url(self, start: int) -> int:
        """Hide who logs in, and the query, of the URL that starts here."""
        text = self._text
        end = _end(_UNBROKEN, text, start)
        begin = text.index("://", start) + 3
        stops = [at for mark in "/?#" if (at := text.find(mark, begin, end)) >= 0]
        authority = min(stops, default=end)
        at = text.rfind("@", begin, authority)
        if at >= 0:
            self._hide(begin, at)
        elif (colon := text.rfind(":", begin, authority)) >= 0 and not _PORT.fullmatch(text, colon, authority):
            # No port is written like this: it is a password that holds a slash.
            return self._hide(begin, end)
        marks = [at for mark in "?#" if (at := text.find(mark, authority, end)) >= 0]
        if marks and min(marks) + 1 < end:
            return self._hide(min(marks) + 1, end)
        if authority < end:
            self._hide_shapes(authority, end)
        return max(end, self._done)

    def _hide_shapes(self, start: int, end: int) -> None:
        for shape in _SHAPE.finditer(self._text, start, end):
            self._hide(shape.start(), shape.end())
        if self._done <= start:
            for part in _BASE64.finditer(self._text, start, end):
                if _is_encoded(part[0], self._depth):
                    self._hide(part.start(), part.end())

    def _hide(self, start: int, end: int) -> int:
        if start < end and self._text[start:end] != HIDDEN:
            self._shown.extend((self._text[self._done : start], HIDDEN))
            self._done = end
        return end


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start


@lru_cache(maxsize=512)
def _may_be_credential(word: str) -> bool:
    """Whether a word that stands in no sentence would be taken for a credential."""
    return _SHAPE.search(word) is not None or any(_is_encoded(part, 0) for part in _BASE64.findall(word))


def _is_encoded(text: str, depth: int) -> bool:
    """Whether it is base64 of something that is compressed, or that holds a credential."""
    if depth > 1 or not _BASE64.fullmatch(text):
        return False
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        data = b64decode(plain[: len(plain) - (len(plain) % 4 == 1)] + "=" * (-len(plain) % 4))
    except (binascii.Error, ValueError):
        return False
    if data.startswith(_COMPRESSED):
        return True
    try:
        inner = data.decode()
    except UnicodeDecodeError:
        return False
    # Windows has it with two bytes a character.
    inner = inner.replace("\0", "")
    if not _is_suspicious(inner):
        return False
    return inner != _Scrubber(inner, prose=False, depth=depth + 1).scrub()
