# SPDX-License-Identifier: MIT
"""
The expressions of an admission policy, evaluated: as much of CEL as Kubernetes 1.31 has and ours
use.

Whatever else there is, or came later, is an error here. A real API server takes and judges them in
``tests/cluster``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'[^']*'|\"[^\"]*\")|(?P<number>\d+)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>&&|\|\||==|!=|<=|>=|\.\?|\[\?|[-+!<>()\[\]{}.,?:]))"
)
_BINARY: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "==": (3, operator.eq),
    "!=": (3, operator.ne),
    "<": (3, operator.lt),
    ">": (3, operator.gt),
    "in": (3, lambda one, many: one in many),
    "+": (4, operator.add),
}
_LAZY = {"||": 1, "&&": 2}
#: Of these the first argument is a variable's name, and the second an expression of it.
_MACROS = ("map", "filter", "exists", "all")
_ABSENT = object()

#: An expression: what it is by the variables.
Expression = Callable[[Mapping[str, Any]], Any]


class Optional:
    """A value that may not be there."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Optional) and self.value == other.value

    def __hash__(self) -> int:
        raise TypeError

    def select(self, key: str) -> Optional:
        return Optional(_ABSENT if self.value is _ABSENT else self.value.get(key, _ABSENT))


def _call(receiver: Any, name: str, arguments: list[Any]) -> Any:
    if isinstance(receiver, str):
        if name == "startsWith":
            return receiver.startswith(*arguments)
        if name == "matches":
            return re.search(arguments[0], receiver) is not None
    elif isinstance(receiver, Optional):
        if name == "orValue":
            return arguments[0] if receiver.value is _ABSENT else receiver.value
    elif isinstance(receiver, list):
        if name == "size":
            return len(receiver)
    elif not isinstance(receiver, dict):
        # An object of the test's own.
        return getattr(receiver, name)(*arguments)
    raise ValueError(f"no {name}() of {receiver!r}")


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"cannot read {text[at : at + 20]!r}")
            self.tokens.append((str(found.lastgroup), found[str(found.lastgroup)]))
            at = found.end()
        self.tokens.append(("end", ""))

    def take(self, *signs: str) -> str | None:
        kind, text = self.tokens[0]
        if kind in ("sign", "name") and text in signs:
            self.tokens.pop(0)
            return text
        return None

    def want(self, sign: str) -> None:
        if not self.take(sign):
            raise ValueError(f"{sign} is missing before {self.tokens[:4]}")

    def name(self) -> str:
        kind, text = self.tokens.pop(0)
        if kind != "name":
            raise ValueError(f"no name: {text!r}")
        return text

    def list(self, end: str) -> list[Expression]:
        found = []
        while not self.take(end):
            found.append(self.choice())
            if not self.take(","):
                self.want(end)
                break
        return found

    def choice(self) -> Expression:
        condition = self.binary(1)
        if not self.take("?"):
            return condition
        yes = self.choice()
        self.want(":")
        no = self.choice()
        return lambda env: yes(env) if condition(env) else no(env)

    def binary(self, level: int) -> Expression:
        left = self.unary()
        while True:
            sign = self.tokens[0][1] if self.tokens[0][0] in ("sign", "name") else ""
            if _LAZY.get(sign, 0) >= level:
                self.take(sign)
                left = _lazy(sign, left, self.binary(_LAZY[sign] + 1))
            elif sign in _BINARY and _BINARY[sign][0] >= level:
                self.take(sign)
                left = _eager(_BINARY[sign][1], left, self.binary(_BINARY[sign][0] + 1))
            else:
                return left

    def unary(self) -> Expression:
        if self.take("!"):
            inner = self.unary()
            return lambda env: not inner(env)
        found = self.primary()
        while sign := self.take(".", ".?", "[", "[?"):
            found = self.member(found, sign)
        return found

    def member(self, of: Expression, sign: str) -> Expression:
        if sign in ("[", "[?"):
            key = self.choice()
            self.want("]")
            if sign == "[":
                return lambda env: of(env)[key(env)]
            return lambda env: Optional(of(env)).select(key(env))
        name = self.name()
        if sign == ".?":
            return lambda env: _optional(of(env)).select(name)
        if not self.take("("):
            return lambda env: of(env)[name]
        if name in _MACROS:
            bound = self.name()
            self.want(",")
            body = self.choice()
            self.want(")")
            return _macro(name, of, bound, body)
        arguments = self.list(")")
        return lambda env: _call(of(env), name, [one(env) for one in arguments])

    def primary(self) -> Expression:
        if self.take("("):
            inner = self.choice()
            self.want(")")
            return inner
        if self.take("["):
            items = self.list("]")
            return lambda env: [one(env) for one in items]
        if self.take("{"):
            self.want("}")
            return lambda env: {}
        kind, text = self.tokens.pop(0)
        if kind == "text":
            return lambda env: text[1:-1]
        if kind == "number":
            return lambda env: int(text)
        if kind != "name":
            raise ValueError(f"not expected: {text!r}")
        if text in ("true", "false", "null"):
            return lambda env: {"true": True, "false": False, "null": None}[text]
        if text == "dyn" and self.take("("):
            inner = self.choice()
            self.want(")")
            return inner
        return lambda env: env[text]


def _optional(value: Any) -> Optional:
    return value if isinstance(value, Optional) else Optional(value)


def _lazy(sign: str, left: Expression, right: Expression) -> Expression:
    if sign == "&&":
        return lambda env: left(env) and right(env)
    return lambda env: left(env) or right(env)


def _eager(act: Callable[[Any, Any], Any], left: Expression, right: Expression) -> Expression:
    return lambda env: act(left(env), right(env))


def _macro(name: str, of: Expression, bound: str, body: Expression) -> Expression:
    def evaluate(env: Mapping[str, Any]) -> Any:
        pairs = [(one, body({**env, bound: one})) for one in of(env)]
        if name == "map":
            return [made for _, made in pairs]
        if name == "filter":
            return [one for one, holds in pairs if holds]
        return (any if name == "exists" else all)(holds for _, holds in pairs)

    return evaluate


def parse(text: str) -> Expression:
    """Return an expression; ValueError if it is none, or more than is known here."""
    parser = _Parser(text)
    found = parser.choice()
    if parser.tokens[0][0] != "end":
        raise ValueError(f"not expected: {parser.tokens[:4]}")
    return found


class _Variables(dict[str, Any]):
    """Evaluated when they are asked for."""

    def __init__(self, expressions: Mapping[str, Expression], env: dict[str, Any]) -> None:
        super().__init__()
        self.expressions = expressions
        self.env = env

    def __missing__(self, name: str) -> Any:
        self[name] = self.expressions[name](self.env)
        return self[name]


class Policy:
    """
    A ValidatingAdmissionPolicy.

    Args:
        path: a manifest whose only documents with expressions are the policy's.
    """

    def __init__(self, path: Path) -> None:
        self.variables: dict[str, Expression] = {}
        self.validations: list[tuple[Expression, Expression]] = []
        name = None
        expression = None
        for key, text in _scalars(path.read_text()):
            if key == "name":
                name = text
            elif key == "messageExpression":
                assert expression is not None
                self.validations.append((expression, parse(text)))
                expression = None
            elif name is not None:
                self.variables[name] = parse(text)
                name = None
            else:
                expression = parse(text)

    def refuses(
        self, now: Any, before: Any = None, *, may: Callable[[str, str, str], bool]
    ) -> str | None:
        """
        Return what is said to a request, None if it is let through.

        Args:
            may: whether the user may do something: group, resource, verb.
        """
        env: dict[str, Any] = {"object": now, "oldObject": before, "request": {"namespace": "x"}}
        for expression, message in self.validations:
            env["variables"] = _Variables(self.variables, {**env, "authorizer": _Authorizer(may)})
            env["variables"].env["variables"] = env["variables"]
            if not expression({**env, "authorizer": _Authorizer(may)}):
                # A message has no authorizer.
                env["variables"] = _Variables(self.variables, env)
                return str(message(env))
        return None


class _Authorizer:
    def __init__(self, may: Callable[[str, str, str], bool]) -> None:
        self.may = may
        self.asked: list[str] = []

    def group(self, name: str) -> _Authorizer:
        made = _Authorizer(self.may)
        made.asked = [name]
        return made

    def resource(self, name: str) -> _Authorizer:
        self.asked.append(name)
        return self

    def namespace(self, name: str) -> _Authorizer:
        return self

    def check(self, verb: str) -> _Authorizer:
        self.asked.append(verb)
        return self

    def allowed(self) -> bool:
        group, resource, verb = self.asked
        return self.may(group, resource, verb)


def _scalars(text: str) -> list[tuple[str, str]]:
    """Return the names of variables and the expressions of a manifest, in their order."""
    found: list[tuple[str, str]] = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = re.fullmatch(r"( +)(?:- )?(name|expression|messageExpression): (.+)", line)
        # A variable's name stands in a list.
        if match is None or (match[2] == "name" and "- name" not in line):
            continue
        value = match[3]
        if value == ">-":
            deep = len(match[1]) + (2 if "- " in line[: len(match[1]) + 2] else 0)
            block = []
            for one in lines[number + 1 :]:
                if len(one) - len(one.lstrip()) <= deep:
                    break
                block.append(one.strip())
            value = " ".join(block)
        elif value[0] == value[-1] == "'" and match[2] != "name" and "{}" in value:
            value = value[1:-1]
        found.append((match[2], value))
    return found
