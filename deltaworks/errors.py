"""Everything that can go wrong in a way the user can act on: one tree, one line each."""


class DeltaworksError(Exception):
    """An expected error. The message says place, finding and next step, and is printed as one line."""

    def __init__(self, place: str, finding: str, next_step: str) -> None:
        """Build the line `place: finding. Next step.`; a full stop at the end of a part is optional."""
        self.place, self.finding, self.next_step = place, finding.rstrip("."), next_step.rstrip(".")
        super().__init__(f"{self.place}: {self.finding}. {self.next_step}.")


class SettingsError(DeltaworksError):
    """A setting, a project file or a secret is missing or wrong."""


class DeclarationError(DeltaworksError):
    """A table's declaration is wrong; found before anything runs."""


class StackError(DeltaworksError):
    """A part of the local stack is missing, down or in the way."""


class ControlError(DeltaworksError):
    """The control store refused or could not be reached."""


class LeaseHeldError(ControlError):
    """Another driver owns the app."""


class LeaseLostError(ControlError):
    """A newer epoch owns the app: this driver must not commit any more."""


class DiskError(DeltaworksError):
    """The disk could not take what was written: what is committed may be lost."""


class LakeError(DeltaworksError):
    """A Delta table is not in the state that its owner left."""


class ForeignCommitError(LakeError):
    """Somebody who does not own the table committed to it."""


class NewerEntryError(LakeError):
    """A commit was made by a version of this software that knows more than this one."""


class CommitLostError(LakeError):
    """The version that a commit was made for is taken."""


class SuspendedError(LakeError):
    """A table kept failing and was suspended; the others went on."""


class UnmetError(LakeError):
    """A critical expectation of a table is not met, and the table is to be suspended as long as that is so."""


class UnfitError(LakeError):
    """A table's transform cannot compute rows: too many to be left out, or nothing else can be computed."""


class NotArrivedError(LakeError):
    """The record that somebody waits for is not in the table: not yet, or it was refused."""


class BadRowsError(DeltaworksError):
    """A table refuses more rows than it may: the app stops, for setting them aside would hide what is wrong."""


class SourceError(DeltaworksError):
    """Kafka does not have what the ledger says comes next."""


class NoAnswerError(SourceError):
    """Kafka does not answer: nothing is known, not even that anything is wrong."""


class LeadersMovedError(NoAnswerError):
    """A partition got another leader since its reading began: what was read may not be what it has."""


class OutletError(DeltaworksError):
    """A table's copy in the serving database or in a topic cannot be brought up to date; it is tried again."""


class CommandError(DeltaworksError):
    """A command cannot be carried out."""


class QueryError(DeltaworksError):
    """An analyst's query cannot be answered."""


class QualityError(DeltaworksError):
    """A suite cannot be judged, or what came of it cannot be used."""
