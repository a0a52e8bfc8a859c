"""A rush that is forecast anew every other second is reported once."""

from __future__ import annotations

from delayq.scaling import Shortfall
from delayq_operator.scaling.capacity_forecast import OVER_SECONDS, SURE_SECONDS, CapacityForecast, Rush

NOW = 1_000_000.0


def forecast(at: float, now: float, needed: int = 63, late: float = 100.0) -> Shortfall:
    return Shortfall(in_seconds=at - now, needed=needed, late_seconds=late)


def reported_once(rush_forecast: CapacityForecast, at: float = NOW + 600) -> CapacityForecast:
    for now in (NOW, NOW + SURE_SECONDS):
        rush_forecast.update(forecast(at, now), now)
    return rush_forecast


def test_a_rush_is_reported_when_it_is_sure() -> None:
    rush_forecast = CapacityForecast()
    for now in (NOW, NOW + 2, NOW + 4, NOW + 6, NOW + 8):
        rush_forecast.update(forecast(NOW + 600, now) if now in (NOW, NOW + 8) else None, now)
        assert rush_forecast.rush is None
    assert reported_once(CapacityForecast()).rush == Rush(at=NOW + 600, needed=63, late_seconds=100)
    # Otherwise each restart would take the warning back, and give it again.
    restarted = CapacityForecast(reported=True)
    restarted.update(forecast(NOW + 600, NOW), NOW)
    assert restarted.rush is not None


def test_one_that_lands_a_little_elsewhere_is_the_same() -> None:
    rush_forecast = reported_once(CapacityForecast())
    before = rush_forecast.rush
    for step in range(1, 20):
        now = NOW + 10 + 2 * step
        rush_forecast.update(
            forecast(NOW + 600 + step % 5, now, needed=63 + step % 3, late=100 + step % 4), now
        )
        assert rush_forecast.rush is before
    rush_forecast.update(forecast(NOW + 600, NOW + 60, needed=100), NOW + 60)
    assert rush_forecast.rush is not None
    assert rush_forecast.rush.needed == 100


def test_one_that_is_absent_for_a_look_is_not_over() -> None:
    rush_forecast = reported_once(CapacityForecast())
    rush_forecast.update(None, NOW + 10)
    assert rush_forecast.rush is not None
    rush_forecast.update(None, NOW + SURE_SECONDS + OVER_SECONDS + 1)
    assert rush_forecast.rush is None
