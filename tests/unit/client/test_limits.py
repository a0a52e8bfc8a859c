"""Limits of a client that has no document."""

from __future__ import annotations

import delayq


def test_limits_for_a_client_without_a_document_can_be_imported_from_the_package() -> None:
    limits = delayq.Limits(max_bytes=1 << 30)
    assert delayq.SyncClient(queue="orders", limits=limits).limits == limits
    assert "Limits" in delayq.__all__
