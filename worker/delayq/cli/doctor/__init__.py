"""delayq doctor: every step from the document to a queue that works, checked in order, with what to do next."""

from delayq.cli.doctor.command import doctor

__all__ = ["doctor"]
