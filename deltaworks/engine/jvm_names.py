"""Remembers what the names of the JVM's packages, classes and static methods mean.

PySpark asks anew each time that a function makes a column: two questions before the call itself, and for an unqualified
name (`functions`), and for each package of a qualified one (`java`, `java.util`), Java looks through every jar for a
class that is called so.
"""

from typing import Any

from py4j.java_gateway import GatewayClient, JavaClass, JavaMember, JavaPackage, JVMView

_ML = "org.apache.spark.ml"
_ADDS_ML = "org.apache.spark.sql.ml.InternalFunctionRegistration$"
"""Adds ML's functions of columns, to all sessions, as it is loaded."""


class _View(JVMView):  # type: ignore[misc]  # py4j has no types
    """Asks for a name once: a class that is found stays what it is."""

    def __getattr__(self, name: str) -> Any:
        _add_functions_of_ml(name, self._gateway_client)
        return _kept(self, name, super().__getattr__(name))


class _Package(JavaPackage):  # type: ignore[misc]  # py4j has no types
    """The same for the names in a package; our jars are on the class path from the start."""

    def __getattr__(self, name: str) -> Any:
        _add_functions_of_ml(f"{self._fqn}.{name}", self._gateway_client)
        return _kept(self, name, super().__getattr__(name))


class _Class(JavaClass):  # type: ignore[misc]  # py4j has no types
    """Asks for a static method once; a field's value may change."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if type(found) is JavaMember:
            self.__dict__[name] = found
        return found


_Package.__name__ = JavaPackage.__name__  # PySpark knows a missing jar by the error that names it
_REMEMBERING = {JavaClass: _Class, JavaPackage: _Package}


def remember_names(jvm: JVMView) -> None:
    """Do so from now on, for all threads and sessions of this JVM."""
    jvm.__class__ = _View


def _add_functions_of_ml(name: str, java: GatewayClient) -> None:
    """Where something of ML is looked for: sessions start without them."""
    if name.startswith(_ML):
        JavaClass("java.lang.Class", java).forName(_ADDS_ML)


def _kept(owner: JVMView | JavaPackage, name: str, found: Any) -> Any:
    if type(found) in _REMEMBERING:
        found.__class__ = _REMEMBERING[type(found)]
        owner.__dict__[name] = found
    return found
