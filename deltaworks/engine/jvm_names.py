"""Remembers what the names of the JVM's classes and static methods mean.

PySpark asks anew each time that a function makes a column: two questions before the call itself, and for an unqualified
name (`functions`) Java looks through every jar, package by package, before it finds the right one.
"""

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JVMView  # type: ignore[import-untyped]  # py4j has no types


class _View(JVMView):  # type: ignore[misc]  # py4j has no types
    """Asks for a name once; what it is cannot change while the JVM runs."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if type(found) is JavaClass:
            found.__class__ = _Class
            self.__dict__[name] = found
        return found


class _Class(JavaClass):  # type: ignore[misc]  # py4j has no types
    """Asks for a static method once; a field's value may change."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if type(found) is JavaMember:
            self.__dict__[name] = found
        return found


def remember_names(jvm: JVMView) -> None:
    """Do so from now on, for all threads and sessions of this JVM."""
    jvm.__class__ = _View
