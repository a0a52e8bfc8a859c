"""delayq doctor: check every requirement of a working queue, and suggest corrections."""

from delayq.cli.doctor.command import doctor

__all__ = ["doctor"]
